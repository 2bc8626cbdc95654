package authz_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
)

// Alice and Bob are workloads of a mesh, whose control plane has a key for each of them. Alice wants Bob's. absent is as
// long as the name of his key, and there is no such key.
const (
	alicesKey = "kubernetes://a/alice/key"
	bobsKey   = "kubernetes://b/bob/key"
	absent    = "kubernetes://b/bob/kex"
	fence     = "kubernetes://a/alice/fence"
	bobsAlias = "also.bob"
	noAlias   = "also.bo6"

	aliceIs, bobIs = "spiffe://td/ns/a/sa/alice", "spiffe://td/ns/b/sa/bob"
)

// rulesOf are those of the mesh.
func rulesOf(share bool) string {
	return fmt.Sprintf(`rules:
  - identity: "spiffe://td/ns/{ns}/sa/{sa}"
    node: {id: "{sa}", metadata.NAMESPACE: "{ns}"}
    read:
      - {types: [LDS, CDS, RDS, EDS], names: ["*", "**"]}
      - {types: [SDS], names: ["kubernetes://{ns}/{sa}/**", "also.{sa}"], share: %v}
`, share)
}

// alice is the scene of her attacks.
type alice struct {
	*scene
	conn    *grpc.ClientConn // hers
	tap     memory           // all that she hears
	bob     *call            // has his key
	own     *call            // has hers
	version string           // of Bob's key
	open    []*call          // hers
}

var hers, his = nodeOf("alice", "a"), nodeOf("bob", "b")

// newAlice has both come and get their keys.
func newAlice(t testing.TB, share bool, sets ...string) *alice {
	t.Helper()
	w := &alice{scene: newScene(t, rulesOf(share), sets...)}
	w.plane.set(cache.Secret, alicesKey, "hers", "also.alice")
	w.plane.set(cache.Secret, bobsKey, canary, bobsAlias)
	w.plane.set(cache.Secret, fence, "fence")
	w.come()
	return w
}

func (w *alice) come() {
	w.conn = w.as(aliceIs, &w.tap)
	w.own, w.bob = begin(w.t, w.conn, deltaADS, cache.Secret), begin(w.t, w.as(bobIs, nil), deltaADS, cache.Secret)
	w.own.asks(hers, nil, alicesKey, fence)
	w.bob.asks(his, nil, bobsKey, bobsAlias)
	w.own.gets(alicesKey, "hers")
	w.own.gets(fence, "fence")
	w.bob.gets(bobsKey, canary)
	got, _ := w.bob.heard()
	w.version = got[0].version[bobsKey]
	w.t.Cleanup(func() {
		for _, c := range append(w.open, w.own, w.bob) {
			c.over()
		}
	})
}

const (
	deltaADS = "envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
	sotwADS  = "envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
)

// ways are the methods by which she asks for Secrets.
var ways = []string{
	deltaADS, sotwADS, "envoy.service.secret.v3.SecretDiscoveryService/DeltaSecrets", "envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets",
	"envoy.service.secret.v3.SecretDiscoveryService/FetchSecrets",
}

// ask begins a call as Alice, with a first request.
func (w *alice) ask(method string, node *core.Node, brought map[string]string, names ...string) *call {
	c := begin(w.t, w.conn, method, cache.Secret)
	w.open = append(w.open, c)
	c.asks(node, brought, names...)
	return c
}

// fenced asks for her fence, and returns all that has come before it and with it, without the names that are
// different, and the nonces, which are random.
func (w *alice) fenced(c *call, asked []string, different string) (all string) {
	if c.stream != nil {
		if c.is("Delta") {
			asked = nil
		}
		c.asks(nil, nil, append(slices.Clone(asked), fence)...)
		c.gets(fence, "fence")
	}
	got, end := c.heard()
	for _, a := range got {
		m := proto.Clone(a.message)
		switch m := m.(type) {
		case *discovery.DeltaDiscoveryResponse:
			m.Nonce = ""
		case *discovery.DiscoveryResponse:
			m.Nonce = ""
		}
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			w.t.Fatal(err)
		}
		all += strings.ReplaceAll(string(b), different, strings.Repeat("-", len(different))) + "\n"
	}
	return all + fmt.Sprint(end)
}

// TestAliceAsks: whichever way she asks, Alice is not told a byte of Bob's key, nor whether there is one, nor whether
// she knows its version.
func TestAliceAsks(t *testing.T) {
	for _, share := range []bool{false, true} {
		w := newAlice(t, share)
		for _, method := range ways {
			for what, told := range map[string]func(name string) string{
				"by name": func(name string) string { return w.byName(method, name) },
				"by an alias": func(name string) string {
					return w.byName(method, strings.NewReplacer(bobsKey, bobsAlias, absent, noAlias).Replace(name))
				},
				"by wildcard":   func(name string) string { return w.byWildcard(method, name) },
				"by a version":  func(name string) string { return w.byVersion(method, w.version, name) },
				"by what it is": func(name string) string { return w.byVersion(method, "wrong", name) },
				"brought alone": func(name string) string { return w.brought(method, name) },
			} {
				if there, not := told(bobsKey), told(absent); there != not {
					t.Errorf("share %v, %s, %s: what is there is answered\n%q\nand what is not\n%q", share, method, what, there, not)
				}
			}
			if right, wrong := w.byVersion(method, w.version, bobsKey), w.byVersion(method, "wrong", bobsKey); right != wrong {
				t.Errorf("share %v, %s: with the right version she is answered\n%q\nand with a wrong one\n%q", share, method, right, wrong)
			}
		}
		w.hearsNothingOfExistence()
		w.hearsOnlyHers()
	}
}

// hearsNothingOfExistence: what she is told is the same when Bob's key is not there any more.
func (w *alice) hearsNothingOfExistence() {
	told := func() (all []string) {
		for _, method := range ways {
			all = append(all, w.byName(method, bobsKey), w.byVersion(method, w.version, bobsKey))
		}
		return all
	}
	there := told()
	w.plane.remove(cache.Secret, bobsKey)
	if err := w.bob.awaits("the removal", func(all []*answer) bool {
		return anyOf(all, func(a *answer) bool { return slices.Contains(a.removed, bobsKey) })
	}); err != nil {
		w.t.Fatal(err)
	}
	for i, not := range told() {
		if there[i] != not {
			w.t.Errorf("%s: while Bob has a key she is answered\n%q\nand then\n%q", ways[i/2], there[i], not)
		}
	}
}

func (w *alice) byName(method, name string) string {
	c := w.ask(method, hers, nil, alicesKey, name)
	c.gets(alicesKey, "hers")
	c.denied(name)
	return w.fenced(c, []string{alicesKey, name}, name)
}

// byWildcard: she asks for everything, and for a name.
func (w *alice) byWildcard(method, name string) string {
	c := w.ask(method, hers, nil, "*", alicesKey, name)
	if c.stream != nil { // a unary call is refused
		c.gets(alicesKey, "hers")
		c.denied(name)
	} else if _, end := c.heard(); status.Code(end) != codes.PermissionDenied {
		w.t.Errorf("a call for everything: %s", c)
	}
	return w.fenced(c, []string{"*", alicesKey, name}, name)
}

// byVersion: she asks for a name that she says she has.
func (w *alice) byVersion(method, version, name string) string {
	c := w.ask(method, hers, map[string]string{name: version}, name, alicesKey)
	c.gets(alicesKey, "hers")
	c.denied(name)
	return w.fenced(c, []string{name, alicesKey}, name)
}

// brought: she says that she has it, and does not ask for it.
func (w *alice) brought(method, name string) string {
	c := w.ask(method, hers, map[string]string{name: w.version}, alicesKey)
	c.gets(alicesKey, "hers")
	return w.fenced(c, []string{alicesKey}, name)
}

// hearsOnlyHers: Bob's key changes, and then Alice's, of which her streams hear.
func (w *alice) hearsOnlyHers() {
	w.t.Helper()
	w.plane.set(cache.Secret, bobsKey, canary+" 2", bobsAlias)
	w.bob.gets(bobsKey, canary+" 2")
	w.plane.set(cache.Secret, alicesKey, "hers 2", "also.alice")
	for _, c := range w.open {
		if _, end := c.heard(); c.stream != nil && end == nil {
			c.gets(alicesKey, "hers 2")
		}
	}
	if w.tap.has(canary) {
		w.t.Error("Alice has heard Bob's key")
	}
	for _, form := range forms(canary) {
		if w.log.has(form) {
			w.t.Error("Bob's key is in the log")
		}
	}
	if w.plane.takeAsked()[cache.Secret][absent] {
		w.t.Error("the control plane is asked for what nobody may read")
	}
	if broken := w.relay.Check(); len(broken) > 0 {
		w.t.Error(broken)
	}
}

// TestAliceIsSomebodyElse: she is not served as another node than her rules let her be, nor as one of another group, nor
// as none.
func TestAliceIsSomebodyElse(t *testing.T) {
	for _, key := range []string{"groups.key=[]", "groups.key=[metadata.NAMESPACE]", "groups.key=[node]"} {
		w := newAlice(t, true, key)
		for _, method := range ways {
			for what, node := range map[string]*core.Node{"as Bob": his, "as one of Bob's": nodeOf("alice", "b"), "as Bob here": nodeOf("bob", "a"), "as one of none": nodeOf("alice", ""), "as nobody": nil} {
				c := w.ask(method, node, nil, alicesKey, bobsKey)
				if end := c.awaits("the end", never); status.Code(end) != codes.PermissionDenied && (node != nil || status.Code(end) != codes.InvalidArgument) {
					t.Errorf("%s, %s, %s: %s", key, method, what, c)
				}
			}
			if strings.HasSuffix(method, "FetchSecrets") {
				continue
			}
			c := w.ask(method, hers, nil, alicesKey)
			c.gets(alicesKey, "hers")
			c.asks(his, nil, bobsKey)
			if end := c.awaits("the end", never); status.Code(end) != codes.InvalidArgument && status.Code(end) != codes.PermissionDenied {
				t.Errorf("%s, %s, as Bob later: %s", key, method, c)
			}
		}
		w.hearsOnlyHers()
	}
}

func never([]*answer) bool { return false }

// TestAliceLooksAround: neither the log nor a snapshot has a byte of Bob's key, whatever the two say; and from a snapshot, too, Alice is served
// only what is hers.
func TestAliceLooksAround(t *testing.T) {
	for _, sealed := range []bool{false, true} {
		sets := []string{"cache.snapshot.interval=1h"}
		dir := t.TempDir()
		if sets = append(sets, "cache.snapshot.dir="+dir); sealed {
			key := filepath.Join(t.TempDir(), "key")
			if err := os.WriteFile(key, []byte(strings.Repeat("k", 32)), 0o600); err != nil {
				t.Fatal(err)
			}
			sets = append(sets, "cache.snapshot.key_file="+key)
		}
		w := newAlice(t, true, sets...)
		for _, c := range []*call{w.own, w.bob} {
			for _, nonce := range []string{"1", "no"} {
				c.refuses(nonce)
			}
		}
		w.byName(deltaADS, bobsKey)
		w.hearsOnlyHers()
		w.stop() // the snapshot is written
		w.onDisk(dir)
		w.sets = append(w.sets, "upstream.address=127.0.0.1:1") // there is no control plane any more
		w.start()
		w.conn = w.as(aliceIs, &w.tap)
		if sealed {
			again := begin(t, w.as(bobIs, nil), deltaADS, cache.Secret)
			again.asks(his, nil, bobsKey)
			again.gets(bobsKey, canary+" 2")
			again.over()
		}
		for _, method := range ways {
			c := w.ask(method, hers, nil, bobsKey)
			c.denied(bobsKey)
		}
		if w.tap.has(canary) {
			t.Error("from the snapshot, Alice has heard Bob's key")
		}
	}
}

// onDisk looks for Bob's key in files.
func (w *alice) onDisk(dir string) {
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		for _, form := range forms(canary) {
			if strings.Contains(string(text), form) {
				w.t.Errorf("%s has Bob's key", filepath.Base(path))
			}
		}
		files++
		return err
	})
	if err != nil || files == 0 {
		w.t.Errorf("%d files: %v", files, err)
	}
}
