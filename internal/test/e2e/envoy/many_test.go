package envoy

import (
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// Ten Envoys of one host with 20,000 clusters each get along with all limits as they are by default, and come back
// with what they have (VALID-8). Short: two Envoys, and 1,000 clusters.
func TestManyClusters(t *testing.T) {
	realenvoy.Need(t)
	clusters, envoys := often(20_000, 1000), often(10, 2)
	has := world{}
	for i := range clusters {
		has.put(cache.Cluster, clusterName(i), static(clusterName(i), time.Second))
	}
	p := newPlane(t, has).Start()
	r := startRelay(t, "many", p.addr)
	r.Close()
	if host := hostAddress(); host != "" { // the shares of clients on loopback are not counted
		r.addr = net.JoinHostPort(host, strconv.Itoa(peer.Port(t)))
		r.sets = append(r.sets, "downstream.listen=["+r.addr+"]", "downstream.insecure=true")
	}
	r.Start()
	tap := peer.StartTap(t, "what the Envoys said and heard", r.addr, peer.TapOptions{}) // Envoy's own pages take it minutes, with so many
	for i := range envoys {
		startEnvoy(t, way{relays: 1}, fmt.Sprint("envoy-", i), tap.Addr)
	}
	const long = 5 * time.Minute // Envoy takes a while to make so many, all the more ten of them on few processors
	peer.Eventually(t, long, func() error {
		sent, acks, _ := clustersSaid(tap.Since(0))
		return peer.First(peer.Is("clusters that came", sent, clusters*envoys), peer.Is("all are acknowledged", acks >= envoys, true))
	})
	r.Close()
	mark := tap.Mark()
	r.Start()
	p.Change(func(w world) { w.put(cache.Cluster, clusterName(7), static(clusterName(7), time.Minute)) })
	peer.Eventually(t, long, func() error {
		sent, _, brought := clustersSaid(tap.Since(mark))
		return peer.First(peer.Is("clusters with which they came back", brought, clusters*envoys), peer.Is("clusters that came", sent, envoys))
	})
	if n := r.nacks(); n > 0 {
		t.Errorf("%d responses were rejected", n)
	}
	if refused := r.log.Lines("client refused"); len(refused) > 0 {
		t.Errorf("refused: %q", refused)
	}
}

// clustersSaid counts the clusters that were sent, the answers to them, and the versions that Envoys came with.
func clustersSaid(said []peer.Said) (sent, acks, brought int) {
	for _, m := range said {
		switch {
		case m.URL != cache.Cluster:
		case m.Response:
			sent += len(m.Names)
		default:
			brought += m.Known
			if m.Nonce != "" {
				acks++
			}
		}
	}
	return sent, acks, brought
}

func clusterName(i int) string {
	return fmt.Sprintf("outbound|8080|v1|service-%d.namespace-%d.svc.cluster.local", i, i%100)
}

// static is a cluster without endpoints.
func static(name string, timeout time.Duration) *cluster.Cluster {
	return &cluster.Cluster{Name: name, ConnectTimeout: durationpb.New(timeout), ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_STATIC}}
}

// hostAddress is one of this host's that is not loopback; "": it has none.
func hostAddress() string {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return ""
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	return ""
}
