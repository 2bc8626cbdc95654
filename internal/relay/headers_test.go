package relay

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/header"
	"github.com/xds-relay/xds-relay/internal/snapshot"
	"github.com/xds-relay/xds-relay/internal/test/xdstest"
)

// token is a client's header authorization, in as many values as there are.
func token(values ...string) session.Peer {
	p := session.Peer{Local: true}
	for _, v := range values {
		p.Headers = append(p.Headers, header.Header{Name: "authorization", Value: header.Value(v)})
	}
	return p
}

// TestHeadersTellGroupsApart: no two clients share a group unless they sent the same
// values in the same order, and no group's name shows one (NODE-13, H-23).
func TestHeadersTellGroupsApart(t *testing.T) {
	clients := map[string]session.Peer{
		"none": token(), "empty": token(""), "a": token("a"), "b": token("b"), "ab": token("ab"), "a, b": token("a", "b"), "b, a": token("b", "a"),
		"a, ": token("a", ""), ", a": token("", "a"), "absent": token("absent"),
	}
	for _, set := range []string{"groups.key=[]", "groups.key=[id]", "groups.profile=sidecar", "groups.secrets=shared"} {
		g := grouping(t, set, "groups.forward_headers=[authorization,x-other]")
		for _, typ := range []cache.TypeURL{cache.Cluster, cache.Secret} {
			names := map[string]string{}
			for who, client := range clients {
				name := place(g, client, &core.Node{Id: "n"}, typ)
				if other, taken := names[name]; taken {
					t.Errorf("%s, %s: %q and %q share %s", set, typ.Short(), who, other, name)
				}
				names[name] = who
				if again := place(g, clients[who], &core.Node{Id: "n"}, typ); again != name {
					t.Errorf("%q is in %s, and in %s", who, name, again)
				}
			}
		}
		secret := place(g, token("canary"), &core.Node{Id: "n"}, cache.Secret)
		if strings.Contains(secret, "canary") || strings.Contains(secret, hash([]byte("canary"))) || strings.Count(secret, "hmac-sha256:") != 1 || !strings.Contains(secret, "header.x-other=absent;") {
			t.Errorf("%s: the name of a group is %s", set, secret)
		}
	}
}

// TestHashesOfHeadersLast: under the snapshot's key, and no longer without; one that is
// another's finds nothing (NODE-13).
func TestHashesOfHeadersLast(t *testing.T) {
	key := func(b byte) *snapshot.Key {
		k, err := snapshot.NewKey(bytes.Repeat([]byte{b}, snapshot.KeySize))
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	name := func(k *snapshot.Key) string {
		g := grouping(t, "groups.forward_headers=[authorization]").Under(k)
		p, end := g.Place(token("a"), nil, cache.Cluster, nil)
		if end != nil {
			t.Fatal(end)
		}
		if g.Keeps(p) != (k != nil) {
			t.Errorf("kept: %v, with a key: %v", g.Keeps(p), k != nil)
		}
		if none, end := g.Place(token(), nil, cache.Cluster, nil); end != nil || !g.Keeps(none) {
			t.Errorf("a group of clients that send nothing is not kept: %v", end)
		}
		return p.Name
	}
	if before, after := name(key(1)), name(key(1)); before != after {
		t.Errorf("after a restart %s is %s", before, after)
	}
	for _, keys := range [][2]*snapshot.Key{{key(1), key(2)}, {nil, nil}, {key(1), nil}} {
		if one, other := name(keys[0]), name(keys[1]); one == other {
			t.Errorf("a hash does not depend on the key: %s", one)
		}
	}
}

// TestNobodyIsInTheDefaultGroup: where headers are forwarded.
func TestNobodyIsInTheDefaultGroup(t *testing.T) {
	g := grouping(t, "groups.forward_headers=[authorization]")
	if name := place(g, token(), nil, cache.Cluster); name == "" || g.HasDefault() {
		t.Errorf("%q; there is a default group: %v", name, g.HasDefault())
	}
	if g := grouping(t); place(g, token("a"), nil, cache.Cluster) != "" || !g.HasDefault() {
		t.Error("there is no default group, though no header is forwarded")
	}
}

func TestAdvice(t *testing.T) {
	sent := token("a").Headers
	for _, tt := range []struct {
		set      string
		sent     []header.Header
		withheld string
		want     []string // for the first entry, and for the second
	}{
		{"groups.max=1", nil, "x-consul-token", []string{"clients send the header x-consul-token", "clients send the header x-consul-token"}},
		{"groups.max=1", nil, "", []string{"it is shown no credentials", "it is shown no credentials"}},
		{"upstream.headers.authorization=a", nil, "", []string{"", "it is shown no credentials"}},
		{"upstream.headers.authorization=a", nil, "authorization", []string{"clients send the header authorization", "clients send the header authorization"}},
		{"groups.forward_headers=[authorization]", sent, "", []string{"", "does not go to this one"}},
		{"groups.forward_headers=[authorization]", nil, "", []string{"send none of groups.forward_headers", "send none of groups.forward_headers"}},
	} {
		g := grouping(t, tt.set, `upstream.fallbacks=[{"address":"127.0.0.1:2"}]`)
		for i, e := range g.config.Upstream.Entries() {
			if got := g.advice(e.Fallback, tt.sent, tt.withheld); (got == "") != (tt.want[i] == "") || !strings.Contains(got, tt.want[i]) {
				t.Errorf("%s, entry %d: %q, want %q", tt.set, i, got, tt.want[i])
			}
		}
	}
}

// lines is a log, one record a line.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(b))
	return len(b), nil
}

func (l *lines) with(parts ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
			found = append(found, line)
		}
	}
	return found
}

func (l *lines) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// heardUp is what the control plane has heard since the last look, the first requests of
// streams only.
func (w *world) heardUp() (opens []string) {
	w.t.Helper()
	synctest.Wait()
	events, err := w.plane.Heard()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range events {
		if strings.HasPrefix(e.Text, "open ") {
			opens = append(opens, e.Text)
		}
	}
	return opens
}

// TestTokenFile: the file of a header is read for each stream; while it cannot be, the
// attempts go on, and the log names the file, and never what was in it (NODE-13).
func TestTokenFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log := new(lines)
	set := fmt.Sprintf(`upstream.headers.authorization={"file":%q,"prefix":"Bearer "}`, file)
	inWorldThat(t, []string{set, "upstream.backoff.jitter=0", "upstream.backoff.max=3s"}, log.logger(), func(w *world) {
		c := w.open(w.dial(), "n", false)
		if opens := w.heardUp(); len(opens) > 0 {
			t.Errorf("streams without a token: %q", opens)
		}
		time.Sleep(20 * time.Second)
		if got := log.with("cannot reach the control plane", "authorization: cannot read", file, "no such file"); len(got) != 1 {
			t.Errorf("%d lines tell of the attempts of 20 s:\n%s", len(got), strings.Join(got, ""))
		}
		if _, err := c.over(); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("a client that waits is told %v (ERR-7)", err)
		}
		write("canary-one\n")
		c = w.open(w.dial(), "n", false)
		time.Sleep(11 * time.Second)
		if opens := w.heardUp(); !slices.Equal(opens, []string{`open node=xds-relay header="authorization:Bearer canary-one"`}) {
			t.Errorf("with a token: %q", opens)
		}
		w.respond("CDS a@1")
		synctest.Wait()

		write("canary-two")
		w.end(`end UNAUTHENTICATED "the token canary-one has expired"`)
		time.Sleep(5 * time.Second)
		if opens := w.heardUp(); !slices.Equal(opens, []string{`open node=xds-relay header="authorization:Bearer canary-two"`}) {
			t.Errorf("with a new token: %q", opens)
		}
		w.respond("CDS a@2")
		synctest.Wait()
		if c.version("a") == "" {
			t.Error("the client has nothing")
		}
		for what, text := range map[string]string{"empty": " \n", "in two lines": "canary-three\ncanary-four", "long": strings.Repeat("canary-", 2000)} {
			write(text)
			before := len(log.with("cannot reach the control plane", file))
			w.end("end UNAVAILABLE")
			time.Sleep(time.Second)
			if n := len(log.with("cannot reach the control plane", file)); n != before+1 {
				t.Errorf("%s: %d lines name the file", what, n-before)
			}
			write("canary-five")
			time.Sleep(20 * time.Second)
			w.heardUp()
			w.respond("CDS a@%d", before)
			synctest.Wait()
		}
	})
	if shown := log.with("canary"); len(shown) > 0 {
		t.Errorf("the log shows a token:\n%s", strings.Join(shown, ""))
	}
	if len(log.with("the token [redacted] has expired")) != 1 {
		t.Errorf("the control plane's words are not in the log:\n%s", strings.Join(log.with("UNAUTH"), ""))
	}
}

// end has the control plane end its stream.
func (w *world) end(words string) {
	w.t.Helper()
	if err := w.plane.Say("up", xdstest.MustParse("up", words)); err != nil {
		w.t.Fatal(err)
	}
}

// TestRefusedWithoutTheClientsToken: a control plane that refuses a group whose clients
// prove something that is not forwarded has the log say so, once (NODE-13).
func TestRefusedWithoutTheClientsToken(t *testing.T) {
	log := new(lines)
	inWorldThat(t, nil, log.logger(), func(w *world) {
		conn := w.dial()
		w.openWith(conn, "n", "x-consul-token", "canary-token", "authorization", "canary-too")
		for range 3 {
			synctest.Wait()
			w.end(`end PERMISSION_DENIED "ACL not found"`)
			time.Sleep(15 * time.Second)
		}
		advice := log.with("level=WARN", "clients send the header authorization, which is not forwarded: see groups.forward_headers")
		if len(advice) != 1 {
			t.Errorf("%d lines of advice:\n%s", len(advice), strings.Join(log.with("WARN"), ""))
		}
	})
	if shown := log.with("canary"); len(shown) > 0 {
		t.Errorf("the log shows a token:\n%s", strings.Join(shown, ""))
	}
}

// TestGroupIsFoundAgain: with a key of the snapshot's, a relay that starts while the
// control plane is away serves a client that sends the same token what there was for it,
// and nobody else (NODE-13, G8).
func TestGroupIsFoundAgain(t *testing.T) {
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	if err := os.WriteFile(key, bytes.Repeat([]byte{7}, snapshot.KeySize), 0o600); err != nil {
		t.Fatal(err)
	}
	set := []string{"groups.forward_headers=[authorization]", "cache.snapshot.dir=" + filepath.Join(dir, "state"), "cache.snapshot.key_file=" + key}
	inWorld(t, set, func(w *world) {
		one := w.openWith(w.dial(), "n", "authorization", "canary-one")
		synctest.Wait()
		w.respond("CDS a@1")
		synctest.Wait()
		if one.version("a") == "" {
			t.Error("the client has nothing")
		}
	})
	inWorld(t, set, func(w *world) {
		w.up.Down()
		conn := w.dial()
		same, other := w.openWith(conn, "m", "authorization", "canary-one"), w.openWith(conn, "n", "authorization", "canary-two")
		none := w.openWith(conn, "n")
		synctest.Wait()
		if same.version("a") == "" {
			t.Error("the group is not found again")
		}
		for who, c := range map[string]*client{"another token": other, "no token": none} {
			if c.version("a") != "" {
				t.Errorf("with %s there is what is another's", who)
			}
		}
		if g := w.relay.Groups(); len(g) != 3 {
			t.Errorf("%d groups", len(g))
		}
		for _, hub := range w.relay.Groups() {
			if strings.Contains(hub.Key(), "canary") {
				t.Errorf("a key shows the token: %s", hub.Key())
			}
		}
	})
}

// TestOwnHeadersAreInOrder: of name.
func TestOwnHeadersAreInOrder(t *testing.T) {
	c, err := config.Load("", []string{`upstream.headers={"x-b":"2","x-a":"1"}`})
	if err != nil {
		t.Fatal(err)
	}
	got, err := OwnHeaders(c.Upstream.Entries()[0].Fallback)()
	if want := []header.Header{{Name: "x-a", Value: "1"}, {Name: "x-b", Value: "2"}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if OwnHeaders(config.Fallback{}) != nil {
		t.Error("there are headers")
	}
}
