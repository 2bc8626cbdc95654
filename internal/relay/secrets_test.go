package relay

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
)

const v2Secret cache.TypeURL = "type.googleapis.com/envoy.api.v2.auth.Secret"

// TestSecretsWithoutRules: by default nobody beyond this host is served what is secret, whoever he proves to be;
// on this host as with identity (NODE-6).
func TestSecretsWithoutRules(t *testing.T) {
	node := &core.Node{Id: "a"}
	for _, key := range []string{"groups.key=[]", "groups.key=[identity]", "groups.profile=sidecar"} {
		policy := grouping(t, append(mutualTLS, key)...)
		identity := grouping(t, append(mutualTLS, key, "groups.secrets=identity")...)
		for _, typ := range []cache.TypeURL{cache.Secret, v2Secret, "x/envoy.extensions.transport_sockets.tls.v3.Secret"} {
			p, end := policy.Place(session.Peer{Identity: "blue"}, node, typ, nil)
			if end == nil || end.Reason != session.Forbidden || !p.Own {
				t.Errorf("%s, %s: a client beyond this host is in %q, %v", key, typ, p.Name, end)
			}
			for _, client := range []session.Peer{{Identity: "blue", Local: true}, {Local: true}} {
				if got, want := place(policy, client, node, typ), place(identity, client, node, typ); got != want {
					t.Errorf("%s, %s: %+v is in %q, and with identity in %q", key, typ, client, got, want)
				}
			}
		}
	}
}

// TestTypesMadeSecret: a type is secret, or is not, as the configuration says (NODE-6).
func TestTypesMadeSecret(t *testing.T) {
	g := grouping(t, `types=[{"type_url":"ECDS","secret":true},{"type_url":"SDS","secret":false}]`)
	one, other := &core.Node{Id: "one"}, &core.Node{Id: "other"}
	local := session.Peer{Local: true}
	for typ, own := range map[cache.TypeURL]bool{cache.Extension: true, cache.Secret: false, v2Secret: true, cache.Cluster: false} {
		if apart := place(g, local, one, typ) != place(g, local, other, typ); apart != own {
			t.Errorf("%s: two clients are in groups of their own: %v, want %v", typ, apart, own)
		}
		if got := place(g, session.Peer{}, one, typ); (got == string(session.Forbidden)) != own {
			t.Errorf("%s: a stranger is in %q", typ, got)
		}
	}
}

// TestWhatToWriteWouldDo: the rules that the log shows to whom a Secret was refused would have it served.
func TestWhatToWriteWouldDo(t *testing.T) {
	g := grouping(t)
	for _, client := range []session.Peer{{Principal: "anonymous"}, {Principal: "spiffe://td/a", Identity: "spiffe://td/a"}} {
		rules, err := ParseRules("rules.yaml", rulesFor(client, cache.Secret), g.config)
		if err != nil {
			t.Fatal(err)
		}
		node := &core.Node{Id: "a"}
		reads, _, end := rules.Reads(client, node, cache.Secret)
		if end == nil {
			_, end = g.Place(client, node, cache.Secret, reads)
		}
		if end != nil {
			t.Errorf("%s: %v", client.Principal, end)
		}
	}
}

// TestWhatToWriteIsSaidOnce: however many clients are refused, the log shows once a file of rules that would do
// (NODE-6); each client is told, and keeps its other types (NODE-14).
func TestWhatToWriteIsSaidOnce(t *testing.T) {
	var log bytes.Buffer
	inWorldThat(t, nil, slog.New(slog.NewTextHandler(&log, nil)), func(w *world) {
		conn, err := grpc.NewClient("passthrough:///relay", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				return w.down.DialFrom(ctx, net.IPv4(192, 0, 2, 1))
			}))
		if err != nil {
			t.Fatal(err)
		}
		w.conns = append(w.conns, conn)
		var clients []*client
		for _, node := range []string{"a", "b", "c"} {
			c := w.open(conn, node, false)
			clients = append(clients, c)
			c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Secret), ResourceNamesSubscribe: []string{"cert"}})
		}
		synctest.Wait()
		w.publish()
		synctest.Wait()
		for _, c := range clients {
			c.see(func() {
				if codes.Code(c.errors["cert"]) != codes.PermissionDenied || c.versions["a"] == "" {
					t.Errorf("a client has %v, and errors %v", c.versions, c.errors)
				}
			})
		}
	})
	text := log.String()
	file := `rules="rules: [{identity: \"anonymous\", read: [{types: [LDS, CDS, RDS, EDS], names: [\"*\", \"**\"]}, {types: [SDS], names: [\"NAME\"], share: true}]}]"`
	if n := strings.Count(text, "authz.rules_file; or set groups.secrets: identity"); n != 1 || !strings.Contains(text, file) {
		t.Errorf("it is said %d times what to write:\n%s", n, text)
	}
}
