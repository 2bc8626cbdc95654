package downstream

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
)

// TestManyNewNames: who asks for very many names that nobody has asked for, or for which there is no room, is read more
// slowly, on all streams. Nobody else is, and neither are those without a share.
func TestManyNewNames(t *testing.T) {
	sharing(t, ServerConfig{}, func(t *testing.T, h hosts, s *Server, _ *endings) {
		asked := 0
		request := func(stream ads, n int) {
			t.Helper()
			names := make([]string, n)
			for i := range names {
				asked++
				names[i] = fmt.Sprint("name", asked)
			}
			if err := stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Endpoint), ResourceNamesSubscribe: names}); err != nil {
				t.Fatal(err)
			}
		}
		client := func(address string) ads {
			t.Helper()
			conn := h.connect(t, address)
			t.Cleanup(func() { conn.Close() })
			stream := open(t, conn)
			request(stream, 100) // there is room for these
			synctest.Wait()
			return stream
		}
		ask := func(stream ads, n int) (took time.Duration) {
			t.Helper()
			begin := time.Now()
			request(stream, n)
			for n > 0 {
				r, err := stream.Recv()
				if err != nil {
					t.Fatal(err)
				}
				n -= len(r.GetResourceErrors())
			}
			return time.Since(begin)
		}
		owes := func(names float64) time.Duration {
			return time.Duration(names / newNames * float64(s.names.asked.within))
		}
		expect := func(what string, took, want time.Duration) {
			t.Helper()
			if d := took - want; d < -time.Millisecond || d > time.Millisecond {
				t.Errorf("%s: the answer came after %v, want %v", what, took, want)
			}
		}
		greedy, again, third := client("192.0.2.1"), client("192.0.2.1"), client("192.0.2.1")
		other, local := client("192.0.2.2"), client("127.0.0.1")
		time.Sleep(time.Minute)
		expect("the first request", ask(greedy, newNames+2*manyNames), 0)
		expect("a small one on another stream", ask(again, manyNames), 0)
		expect("one of somebody else", ask(other, newNames), 0)
		expect("the next one", ask(greedy, 1), owes(2*manyNames)) // it was owed before the small one
		expect("a large one on a third stream", ask(third, manyNames+1), owes(manyNames))
		for range 3 {
			expect("one without a share", ask(local, newNames), 0)
		}
	})
}
