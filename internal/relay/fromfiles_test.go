package relay

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/certs"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/test/xdstest"
)

// directory is one with files of resources.
type directory struct {
	t    *testing.T
	path string
}

func newDirectory(t *testing.T) directory { return directory{t, t.TempDir()} }

// put renames a file into place.
func (d directory) put(name, text string) {
	d.t.Helper()
	begun := filepath.Join(d.path, "."+name)
	if err := os.WriteFile(begun, []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
	if err := os.Rename(begun, filepath.Join(d.path, name)); err != nil {
		d.t.Fatal(err)
	}
}

// clustersYAML is a file of clusters, each with a version of its own.
func clustersYAML(versions ...string) string {
	var b strings.Builder
	b.WriteString("type_url: type.googleapis.com/envoy.config.cluster.v3.Cluster\nresources:\n")
	for _, v := range versions {
		name, label, _ := strings.Cut(v, "@")
		fmt.Fprintf(&b, "- {\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: %q, alt_stat_name: v%s}\n", name, label)
	}
	return b.String()
}

// names are those of the resources that a client has.
func (c *client) names() (names []string) {
	c.see(func() { names = slices.Sorted(maps.Keys(c.versions)) })
	return names
}

// inWorldOf is inWorld where the control plane is a directory. Nothing reports its changes, so they are seen within
// upstream.files.poll.
func inWorldOf(t *testing.T, d directory, set []string, f func(w *world)) {
	inWorld(t, append(set, "upstream.address=files://"+d.path), f)
}

// TestFromFiles: what files hold is the whole truth, at once: also that something does not exist (FS-8, MISS-5). What
// is wrong changes nothing (FS-5).
func TestFromFiles(t *testing.T) {
	d := newDirectory(t)
	d.put("clusters.yaml", clustersYAML("a@1", "b@1"))
	inWorldOf(t, d, nil, func(w *world) {
		c := w.open(w.dial(), "c", false)
		for _, typ := range []cache.TypeURL{cache.Endpoint, cache.Route} {
			c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(typ), ResourceNamesSubscribe: []string{"gone"}})
		}
		begins := time.Now()
		synctest.Wait()
		c.see(func() {
			if c.responses != 2 || time.Since(begins) > 0 { // none for a route (MISS-9)
				t.Errorf("%d responses after %v; the clusters and the removal of the endpoints are wanted at once", c.responses, time.Since(begins))
			}
		})
		if got := c.names(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("%q are there", got)
		}
		before := c.version("b")
		d.put("clusters.yaml", clustersYAML("b@1", "c@1"))
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if got := c.names(); !slices.Equal(got, []string{"b", "c"}) || c.version("b") != before {
			t.Errorf("%q are there after a change", got)
		}
		for name, text := range map[string]string{"clusters.yaml": clustersYAML("d@1", "d@2"), "more.yaml": "no"} {
			d.put(name, text)
			time.Sleep(31 * time.Second)
			synctest.Wait()
			if got := c.names(); !slices.Equal(got, []string{"b", "c"}) {
				t.Errorf("%q are there after a mistake in %s", got, name)
			}
		}
		d.put("more.yaml", "type_url: type.googleapis.com/envoy.config.cluster.v3.Cluster\nresources: []\n")
		d.put("clusters.yaml", clustersYAML("b@2"))
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if got := c.names(); !slices.Equal(got, []string{"b"}) || c.version("b") == before {
			t.Errorf("%q are there after the mistakes were corrected", got)
		}
		if ready, why := w.relay.Ready(); !ready {
			t.Errorf("not ready: %s", why)
		}
	})
}

// TestFromFiles_Globs: a glob covers what is in files (NAME-11), and a change adds, changes and removes members. That it is
// empty is told by its own name (NAME-12).
func TestFromFiles_Globs(t *testing.T) {
	const under = "xdstp://plane/envoy.config.cluster.v3.Cluster/"
	const glob, other = under + "web/*?a=1&b=2", "?b=2&a=1" // members keep the order that upstream gives them (NAME-9)
	d := newDirectory(t)
	put := func(members ...string) {
		versions := []string{under + "web/x@1", under + "db/y@1"} // not covered
		for _, m := range members {
			name, version, _ := strings.Cut(m, "@")
			versions = append(versions, under+"web/"+name+other+"@"+version)
		}
		d.put("clusters.yaml", clustersYAML(versions...))
	}
	put("a@1", "b@1")
	inWorldOf(t, d, nil, func(w *world) {
		c := w.openNamed("c", cache.Cluster, glob, under+"none/*")
		late := func() *client { return w.openNamed("late", cache.Cluster, glob) }
		wants := func(c *client, gone []string, members ...string) {
			t.Helper()
			synctest.Wait()
			for i, m := range members {
				members[i] = under + "web/" + m + other
			}
			if got := c.names(); !slices.Equal(got, members) {
				t.Errorf("%q are there, not %q", got, members)
			}
			if got := c.gone(); !slices.Equal(got, gone) {
				t.Errorf("%q are gone, not %q", got, gone)
			}
		}
		member := func(name string) string { return under + "web/" + name + other }
		wants(c, []string{under + "none/*"}, "a", "b")
		a, b := c.version(member("a")), c.version(member("b"))
		put("a@2", "b@1", "c@1")
		time.Sleep(31 * time.Second)
		wants(c, nil, "a", "b", "c")
		if c.version(member("a")) == a || c.version(member("b")) != b {
			t.Error("of two members only the first has changed")
		}
		put("b@1")
		time.Sleep(31 * time.Second)
		wants(c, []string{member("a"), member("c")}, "b")
		wants(late(), nil, "b")
		put()
		time.Sleep(31 * time.Second)
		wants(c, []string{glob, member("b")})
		wants(late(), []string{glob})
		put("d@1")
		time.Sleep(31 * time.Second)
		wants(c, nil, "d")
	})
}

// TestFromFiles_Start: a path that is missing or wrong keeps the relay from starting; one that may be missing is a
// control plane that cannot be reached, until it is there (FS-6).
func TestFromFiles_Start(t *testing.T) {
	d := newDirectory(t)
	start := func(set ...string) error {
		c, err := config.Load("", append(set, "upstream.address=files://"+d.path+"/later"))
		if err != nil {
			t.Fatal(err)
		}
		r, err := New(c, Options{Follow: certs.Options{NoNotify: true}})
		if err == nil {
			r.Close(0)
		}
		return err
	}
	if err := start(); err == nil || !strings.Contains(err.Error(), "/later: no such file or directory") {
		t.Errorf("a path that is missing: %v", err)
	}
	if err := start("upstream.files.optional=true"); err != nil {
		t.Error(err)
	}
	if err := os.Mkdir(d.path+"/later", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := start("upstream.files.optional=true"); err == nil || !strings.Contains(err.Error(), "upstream.address: "+d.path+"/later: there is no file of resources") {
		t.Errorf("a path without files: %v", err)
	}
	os.Remove(d.path + "/later")
	inWorldOf(t, directory{t, d.path + "/later"}, []string{"upstream.files.optional=true", "upstream.backoff.max=1s"}, func(w *world) {
		c := w.open(w.dial(), "c", false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, err := c.over(); err == nil || !strings.Contains(err.Error(), "there is nothing to serve yet") {
			t.Errorf("a client that waits is told %v", err)
		}
		if err := os.Mkdir(d.path+"/later", 0o700); err != nil {
			t.Fatal(err)
		}
		directory{t, d.path + "/later"}.put("c.yaml", clustersYAML("a@1"))
		time.Sleep(32 * time.Second)
		c = w.open(w.dial(), "c", false)
		time.Sleep(2 * time.Second) // the stream may have been opened in this second, without the type that nobody wanted any longer
		synctest.Wait()
		if got := c.names(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("%q are there", got)
		}
	})
}

// TestFromFiles_Reload: another path is put to use without a stream of a client ending, and the one before is let go.
func TestFromFiles_Reload(t *testing.T) {
	one, two := newDirectory(t), newDirectory(t)
	one.put("clusters.yaml", clustersYAML("a@1", "b@1"))
	two.put("clusters.yaml", clustersYAML("b@1", "c@1"))
	inWorldOf(t, one, nil, func(w *world) {
		c := w.open(w.dial(), "c", false)
		synctest.Wait()
		next, err := config.Load("", []string{"upstream.address=files://" + two.path})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.relay.Reconfigure(next); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := c.names(); !slices.Equal(got, []string{"b", "c"}) {
			t.Errorf("%q are there", got)
		}
		if _, err := c.over(); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(two.path); err != nil {
			t.Fatal(err)
		}
		if next, err = config.Load("", []string{"upstream.address=files://" + one.path + "/gone"}); err != nil {
			t.Fatal(err)
		}
		if err := w.relay.Reconfigure(next); err == nil {
			t.Error("a path that is missing is put to use")
		}
	})
}

// generationOf are files of one generation, which each resource has in it.
func generationOf(n int) map[string]string {
	text := func(typ, name, field string) string {
		var b strings.Builder
		fmt.Fprintf(&b, "type_url: type.googleapis.com/envoy.config.%s\nresources:\n", typ)
		for i := range 20 {
			fmt.Fprintf(&b, "- {\"@type\": type.googleapis.com/envoy.config.%s, %s: %s-%d, %s}\n", typ, name, strings.ToLower(typ[:1]), i, fmt.Sprintf(field, n))
		}
		return b.String()
	}
	return map[string]string{
		"c.yaml": text("cluster.v3.Cluster", "name", "alt_stat_name: generation-%d."),
		"e.yaml": text("endpoint.v3.ClusterLoadAssignment", "cluster_name", "endpoints: [{lb_endpoints: [{endpoint: {hostname: generation-%d.}}]}]"),
		"l.yaml": text("listener.v3.Listener", "name", "stat_prefix: generation-%d."),
		"r.yaml": text("route.v3.RouteConfiguration", "name", "virtual_hosts: [{name: generation-%d.}]"),
	}
}

// TestFromFiles_Fleet: a change of all files is one load, and to each of many clients one response a type, which has
// all of the generation and nothing of the one before.
func TestFromFiles_Fleet(t *testing.T) {
	const clients, each = 1000, 20
	d := newDirectory(t)
	put := func(n int) {
		for name, text := range generationOf(n) {
			d.put(name, text)
		}
	}
	put(1)
	loads := &loadCount{}
	synctest.Test(t, func(t *testing.T) {
		c, err := config.Load("", []string{"upstream.address=files://" + d.path})
		if err != nil {
			t.Fatal(err)
		}
		down := xdstest.NewNetwork()
		r, err := New(c, Options{Follow: certs.Options{NoNotify: true}, Files: loads})
		if err != nil {
			t.Fatal(err)
		}
		r.Serve(down.Listener())
		ctx, cancel := context.WithCancel(context.Background())
		var done sync.WaitGroup
		var mu sync.Mutex
		generation, responses, mixed := 1, make(map[string]int), 0
		var conns []*grpc.ClientConn
		for i := range clients {
			if i%100 == 0 {
				conn, err := grpc.NewClient("passthrough:///relay", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(down.Dial))
				if err != nil {
					t.Fatal(err)
				}
				conns = append(conns, conn)
			}
			stream, err := discovery.NewAggregatedDiscoveryServiceClient(conns[len(conns)-1]).DeltaAggregatedResources(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, typ := range []cache.TypeURL{cache.Cluster, cache.Endpoint, cache.Listener, cache.Route} {
				if err := stream.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: fmt.Sprint(i)}, TypeUrl: string(typ), ResourceNamesSubscribe: []string{"*"}}); err != nil {
					t.Fatal(err)
				}
			}
			done.Go(func() {
				for {
					resp, err := stream.Recv()
					if err != nil {
						return
					}
					mu.Lock()
					responses[fmt.Sprint(resp.GetTypeUrl(), " to client ", i)]++
					if len(resp.GetResources()) != each || strings.Count(resp.String(), fmt.Sprintf("generation-%d.", generation)) != each {
						mixed++
					}
					mu.Unlock()
					_ = stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce()}) // its end is heard above
				}
			})
		}
		check := func() {
			t.Helper()
			time.Sleep(31 * time.Second)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			more := 0
			for _, n := range responses {
				more += n - 1
			}
			if len(responses) != 4*clients || more > 0 || mixed > 0 {
				t.Errorf("generation %d: %d clients and types had %d responses too many, and %d were of another generation, too", generation, len(responses), more, mixed)
			}
			clear(responses)
			generation++
		}
		check()
		put(2)
		check()
		if loads.n.Load() != 2 {
			t.Errorf("there were %d loads", loads.n.Load())
		}
		cancel()
		done.Wait()
		for _, conn := range conns {
			conn.Close()
		}
		r.Close(0)
	})
}

type loadCount struct{ n atomic.Int32 }

func (l *loadCount) FilesLoaded(string, bool) { l.n.Add(1) }

// TestFromFiles_LastResort: behind a control plane that cannot be reached, files fill what nobody has a copy of. Who asks
// for what they lack is told that the control plane is away, and not that there is none (UP-26).
func TestFromFiles_LastResort(t *testing.T) {
	d := newDirectory(t)
	d.put("clusters.yaml", clustersYAML("a@9", "b@9"))
	inWorld(t, []string{"upstream.backoff.max=1s", "upstream.fallbacks=[{address: 'files://" + d.path + "'}]"}, func(w *world) {
		before := w.open(w.dial(), "c", false)
		synctest.Wait()
		w.publish()
		synctest.Wait()
		w.plane.HangUp()
		w.up.Down()
		time.Sleep(10 * time.Minute)
		before.send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Endpoint), ResourceNamesSubscribe: []string{"gone"}})
		late := w.open(w.dial(), "late", false)
		late.send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Cluster), ResourceNamesSubscribe: []string{"b"}})
		time.Sleep(time.Minute)
		synctest.Wait()
		for name, c := range map[string]*client{"the one before": before, "the late one": late} {
			if got := c.version("a"); got != w.published[0].version {
				t.Errorf("%s has a in version %q, which is not the control plane's", name, got)
			}
		}
		if before.version("b") != "" || late.version("b") == "" {
			t.Errorf("b is at %q and at %q; it is for who asks for it by name", before.names(), late.names())
		}
		before.see(func() {
			if before.errors["gone"] != int32(codes.Unavailable) || before.err != nil {
				t.Errorf("who asks for what is nowhere is told %v, %v", before.errors, before.err)
			}
		})
	})
}
