package loadreport

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	lrs "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// at is so many seconds after the start.
func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

// world is a Sum of which everything is asked.
type world struct {
	t *testing.T
	*Sum
	lost map[Reason]int
}

func newWorld(t *testing.T, room int) *world {
	w := &world{t: t, lost: make(map[Reason]int)}
	w.Sum = New(NewRoom(room), func(r Reason, n int) { w.lost[r] += n }, start)
	w.Ask(&lrs.LoadStatsResponse{SendAllClusters: true, ReportEndpointGranularity: true})
	return w
}

// check: what is kept is accounted for, and what is in progress is what clients have.
func (w *world) check(clients ...*Client) {
	w.t.Helper()
	bytes, requests := 0, make(map[*place]uint64)
	for _, c := range clients {
		bytes += len(c.held) * heldBytes
		for _, h := range c.held {
			requests[h.at] += h.requests
		}
	}
	place := func(p *place) {
		bytes += p.bytes
		for _, m := range p.metrics {
			bytes += m.bytes
		}
		if p.requests != requests[p] {
			w.t.Errorf("%d requests are in progress at a place, and clients have %d", p.requests, requests[p])
		}
	}
	for _, c := range w.clusters {
		bytes += c.bytes
		for _, d := range c.categories {
			bytes += d.bytes
		}
		for _, l := range c.localities {
			place(&l.place)
			for _, h := range l.endpoints {
				place(&h.place)
			}
		}
	}
	if bytes != w.bytes || bytes != int(w.room.used.Load()) {
		w.t.Errorf("%d bytes are kept, %d are counted, and %d taken", bytes, w.bytes, int(w.room.used.Load()))
	}
}

// cluster is a report of one.
func report(name string, seconds int, localities ...*endpoint.UpstreamLocalityStats) []*endpoint.ClusterStats {
	return []*endpoint.ClusterStats{{ClusterName: name, LoadReportInterval: durationpb.New(time.Duration(seconds) * time.Second), UpstreamLocalityStats: localities}}
}

func zone(name string, issued, progress uint64) *endpoint.UpstreamLocalityStats {
	return &endpoint.UpstreamLocalityStats{Locality: &core.Locality{Zone: name}, TotalIssuedRequests: issued, TotalRequestsInProgress: progress}
}

// text shows a report, shortly and in order.
func text(stats []*endpoint.ClusterStats) string {
	var lines []string
	for _, c := range stats {
		line := fmt.Sprintf("%s/%s %v", c.GetClusterName(), c.GetClusterServiceName(), c.GetLoadReportInterval().AsDuration())
		if n := c.GetTotalDroppedRequests(); n > 0 {
			line += fmt.Sprintf(" dropped=%d", n)
		}
		var parts []string
		for _, d := range c.GetDroppedRequests() {
			parts = append(parts, fmt.Sprintf("%s=%d", d.GetCategory(), d.GetDroppedCount()))
		}
		for _, l := range c.GetUpstreamLocalityStats() {
			part := fmt.Sprintf("[%s/%d issued=%d progress=%d", l.GetLocality().GetZone(), l.GetPriority(), l.GetTotalIssuedRequests(), l.GetTotalRequestsInProgress())
			for _, m := range l.GetLoadMetricStats() {
				part += fmt.Sprintf(" %s=%v/%d", m.GetMetricName(), m.GetTotalMetricValue(), m.GetNumRequestsFinishedWithMetric())
			}
			if m := l.GetCpuUtilization(); m != nil {
				part += fmt.Sprintf(" cpu=%v/%d", m.GetTotalMetricValue(), m.GetNumRequestsFinishedWithMetric())
			}
			for _, e := range l.GetUpstreamEndpointStats() {
				part += fmt.Sprintf(" %s:%d=%d+%d", e.GetAddress().GetSocketAddress().GetAddress(), e.GetAddress().GetSocketAddress().GetPortValue(), e.GetTotalIssuedRequests(), e.GetTotalRequestsInProgress())
			}
			parts = append(parts, part+"]")
		}
		slices.Sort(parts)
		lines = append(lines, strings.Join(append([]string{line}, parts...), " "))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (w *world) takes(seconds int, want string) {
	w.t.Helper()
	if got := text(w.Take(at(seconds))); got != want {
		w.t.Errorf("after %d s the report is\n%s\nwant\n%s", seconds, got, want)
	}
}

// TestSum: counters add up and go once; what is in progress is what each client has said last, and goes with it; what
// nobody mentions is forgotten (LRS-5, LRS-7).
func TestSum(t *testing.T) {
	w := newWorld(t, 1<<20)
	a, b := w.Join(), w.Join()
	a.Report(report("c", 10, zone("x", 1, 5), zone("y", 2, 0)), nil, at(10))
	b.Report(report("c", 10, zone("x", 4, 7)), nil, at(10))
	w.check(a, b)
	w.takes(10, "c/ 10s [x/0 issued=5 progress=12] [y/0 issued=2 progress=0]")
	w.takes(20, "c/ 10s [x/0 issued=0 progress=12]")
	a.Report(report("c", 10, zone("x", 1, 6)), nil, at(21))
	a.Report(report("c", 10, zone("x", 1, 1)), nil, at(22))
	w.takes(30, "c/ 10s [x/0 issued=2 progress=8]")
	a.Report(nil, nil, at(31)) // a report has all
	w.takes(40, "c/ 10s [x/0 issued=0 progress=7]")
	b.Leave()
	w.check(a)
	w.takes(50, "")
	if int(w.room.used.Load()) != 0 {
		t.Errorf("%d bytes are taken for nothing", int(w.room.used.Load()))
	}
	b.Report(report("c", 10, zone("x", 1, 0)), nil, at(65))
	w.takes(70, "c/ 15s [x/0 issued=1 progress=0]")
}

// TestSumTellsApart: clusters by name and service, localities by all that they say and by priority, endpoints by address,
// metrics and categories by name (LRS-5).
func TestSumTellsApart(t *testing.T) {
	w := newWorld(t, 1<<20)
	endpointAt := func(port uint32, unix string, issued uint64) *endpoint.UpstreamEndpointStats {
		a := &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{Address: "h", PortSpecifier: &core.SocketAddress_PortValue{PortValue: port}}}}
		if unix != "" {
			a = &core.Address{Address: &core.Address_Pipe{Pipe: &core.Pipe{Path: unix}}}
		}
		return &endpoint.UpstreamEndpointStats{Address: a, TotalIssuedRequests: issued, TotalRequestsInProgress: 1}
	}
	one := func() []*endpoint.ClusterStats {
		l := zone("x", 1, 0)
		l.LoadMetricStats = []*endpoint.EndpointLoadMetricStats{{MetricName: "m", NumRequestsFinishedWithMetric: 1, TotalMetricValue: 0.5}, {MetricName: "bad", TotalMetricValue: math.NaN()}}
		l.CpuUtilization = &endpoint.UnnamedEndpointLoadMetricStats{NumRequestsFinishedWithMetric: 2, TotalMetricValue: 0.25}
		l.MemUtilization = &endpoint.UnnamedEndpointLoadMetricStats{TotalMetricValue: math.Inf(1)}
		l.UpstreamEndpointStats = []*endpoint.UpstreamEndpointStats{endpointAt(1, "", 3), endpointAt(2, "", 4), endpointAt(0, "/a", 5), endpointAt(0, "/b", 6)}
		other := zone("x", 1, 0)
		other.Priority = 1
		r := report("c", 10, l, other)
		r[0].TotalDroppedRequests, r[0].DroppedRequests = 3, []*endpoint.ClusterStats_DroppedRequests{{Category: "lb", DroppedCount: 1}, {Category: "throttle", DroppedCount: 2}}
		second := report("c", 10, zone("x", 1, 0))
		second[0].ClusterServiceName = "s"
		return append(r, second...)
	}
	a, b := w.Join(), w.Join()
	a.Report(one(), nil, at(10))
	b.Report(one(), nil, at(10))
	w.check(a, b)
	got := w.Take(at(10))
	for _, c := range got { // of unordered lists
		for _, l := range c.GetUpstreamLocalityStats() {
			slices.SortFunc(l.GetUpstreamEndpointStats(), func(x, y *endpoint.UpstreamEndpointStats) int {
				return int(x.GetTotalIssuedRequests()) - int(y.GetTotalIssuedRequests())
			})
		}
	}
	want := "c/ 10s dropped=6 [x/0 issued=2 progress=0 m=1/2 cpu=0.5/4 h:1=6+2 h:2=8+2 :0=10+2 :0=12+2] [x/1 issued=2 progress=0] lb=2 throttle=4\nc/s 10s [x/0 issued=2 progress=0]"
	if text(got) != want || w.lost[NotFinite] != 4 {
		t.Errorf("the report is\n%s\nwant\n%s\nlost: %v", text(got), want, w.lost)
	}
	a.Leave()
	b.Leave()
	if w.Take(at(20)); int(w.room.used.Load()) != 0 {
		t.Errorf("%d bytes are taken for nothing", int(w.room.used.Load()))
	}
}

// TestGiveBack: what could not be sent goes later, once, with the longer interval, and with what is in progress then
// (LRS-6).
func TestGiveBack(t *testing.T) {
	w := newWorld(t, 1<<20)
	a := w.Join()
	a.Report(report("c", 10, zone("x", 1, 5)), nil, at(10))
	w.GiveBack(w.Take(at(10)))
	w.check(a)
	a.Report(report("c", 10, zone("x", 2, 4)), nil, at(20))
	a.Report(report("new", 5, zone("x", 1, 0)), nil, at(25))
	w.takes(30, "c/ 30s [x/0 issued=3 progress=0]\nnew/ 10s [x/0 issued=1 progress=0]")
}

// TestAsked: what the control plane does not ask for, or the client may not read, is not reported.
func TestAsked(t *testing.T) {
	w := newWorld(t, 1<<20)
	w.Ask(&lrs.LoadStatsResponse{Clusters: []string{"c", "d"}})
	a := w.Join()
	l := zone("x", 1, 1)
	l.UpstreamEndpointStats = []*endpoint.UpstreamEndpointStats{{TotalIssuedRequests: 1}}
	a.Report(slices.Concat(report("c", 10, l), report("d", 10, zone("x", 1, 1)), report("e", 10, zone("x", 1, 1)), report("d", 10)), func(name string) bool { return name != "d" }, at(10))
	w.takes(10, "c/ 10s [x/0 issued=1 progress=1]")
	if want := map[Reason]int{Unasked: 2, Forbidden: 2}; !maps.Equal(w.lost, want) {
		t.Errorf("lost are %v, want %v", w.lost, want)
	}
	w.Ask(&lrs.LoadStatsResponse{Clusters: []string{"d"}})
	w.takes(20, "")
	a.Report(nil, nil, at(30))
	w.check(a)
	if int(w.room.used.Load()) != 0 {
		t.Errorf("%d bytes are taken for nothing", int(w.room.used.Load()))
	}
}

// TestRoom: a client that invents names gets its share, others still get theirs, and all of it comes back.
func TestRoom(t *testing.T) {
	const room = 1 << 16
	w := newWorld(t, room)
	bad, good := w.Join(), w.Join()
	invent := func(n int) []*endpoint.ClusterStats {
		l := zone("x", 1, 1)
		for i := range 3 {
			l.LoadMetricStats = append(l.LoadMetricStats, &endpoint.EndpointLoadMetricStats{MetricName: fmt.Sprint("m", n, i), TotalMetricValue: 1})
			l.UpstreamEndpointStats = append(l.UpstreamEndpointStats, &endpoint.UpstreamEndpointStats{
				Address:             &core.Address{Address: &core.Address_Pipe{Pipe: &core.Pipe{Path: fmt.Sprint(n, i, strings.Repeat("/", n))}}},
				TotalIssuedRequests: 1, TotalRequestsInProgress: 1,
			})
		}
		r := report(fmt.Sprint("c", n), 10, l)
		r[0].DroppedRequests = []*endpoint.ClusterStats_DroppedRequests{{Category: strings.Repeat("d", n)}}
		return r
	}
	for n := range 500 {
		bad.Report(invent(n), nil, at(10))
		if n%50 == 0 {
			w.check(bad, good)
		}
	}
	if int(w.room.used.Load()) > room/clientShare || w.lost[Full] < 400 {
		t.Errorf("one client takes %d bytes of %d, and %v was lost", int(w.room.used.Load()), room, w.lost)
	}
	good.Report(report("mine", 10, zone("x", 7, 1)), nil, at(10))
	if got := text(w.Take(at(10))); !strings.Contains(got, "mine/ 10s [x/0 issued=7 progress=1]") {
		t.Errorf("the report is %s", got)
	}
	var others []*Client
	for n := range 20 {
		c := w.Join()
		for i := range 30 {
			c.Report(invent(1000*n+i), nil, at(11))
		}
		others = append(others, c)
	}
	if int(w.room.used.Load()) > room {
		t.Errorf("%d bytes are taken of %d", int(w.room.used.Load()), room)
	}
	w.check(append(others, bad, good)...)
	for _, c := range append(others, bad, good) {
		c.Leave()
	}
	w.Take(at(20))
	w.Take(at(30))
	if int(w.room.used.Load()) != 0 {
		t.Errorf("%d bytes are taken for nothing", int(w.room.used.Load()))
	}
}

// TestNumbers: sums stay at the largest number, and what one client lies about does not spoil another's.
func TestNumbers(t *testing.T) {
	w := newWorld(t, 1<<20)
	a, b := w.Join(), w.Join()
	a.Report(report("c", -5, zone("x", math.MaxUint64, math.MaxUint64)), nil, at(10))
	b.Report(report("c", math.MaxInt32, zone("x", 9, 1)), nil, at(10))
	w.takes(10, fmt.Sprintf("c/ 10s [x/0 issued=%d progress=%d]", uint64(math.MaxUint64), uint64(mostInProgress+1)))
	a.Leave()
	w.takes(20, "c/ 10s [x/0 issued=0 progress=1]")
}

// TestAbandon: what nobody will report is lost, and counted.
func TestAbandon(t *testing.T) {
	w := newWorld(t, 1<<20)
	a := w.Join()
	a.Report(append(report("c", 10, zone("x", 1, 1)), report("d", 10, zone("x", 1, 1))...), nil, at(10))
	a.Leave()
	if w.Abandon(); w.lost[Abandoned] != 2 || int(w.room.used.Load()) != 0 {
		t.Errorf("%v is lost, and %d bytes are taken", w.lost, int(w.room.used.Load()))
	}
}

// TestTwin: over any course of reports, leaves and failed sends, all that is taken is what was reported, and what is in
// progress is what the clients that are there have said last.
func TestTwin(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t, 1<<24)
		issued, taken := make(map[string]uint64), make(map[string]uint64)
		said := make(map[*Client]map[string]uint64)
		for step := range 300 {
			now := at(step)
			clients := slices.Collect(maps.Keys(said))
			switch n := random.IntN(10); {
			case n == 0 || len(clients) == 0:
				said[w.Join()] = nil
			case n == 1:
				clients[0].Leave()
				delete(said, clients[0])
			case n == 2:
				all := w.Take(now)
				progress := make(map[string]uint64)
				for _, says := range said {
					for k, v := range says {
						progress[k] += v
					}
				}
				for _, c := range all {
					for _, l := range c.GetUpstreamLocalityStats() {
						k := c.GetClusterName() + l.GetLocality().GetZone()
						if l.GetTotalRequestsInProgress() != progress[k] {
							t.Fatalf("seed %d: at %s %d are in progress, want %d", seed, k, l.GetTotalRequestsInProgress(), progress[k])
						}
						delete(progress, k)
						taken[k] += l.GetTotalIssuedRequests()
					}
				}
				if len(progress) > 0 {
					t.Fatalf("seed %d: the report lacks what is in progress at %v", seed, progress)
				}
				if random.IntN(3) == 0 {
					w.GiveBack(all)
					for _, c := range all {
						for _, l := range c.GetUpstreamLocalityStats() {
							taken[c.GetClusterName()+l.GetLocality().GetZone()] -= l.GetTotalIssuedRequests()
						}
					}
				}
			default:
				c := clients[random.IntN(len(clients))]
				says := make(map[string]uint64)
				var stats []*endpoint.ClusterStats
				for _, name := range []string{"a", "b"}[:random.IntN(3)] {
					for _, in := range []string{"x", "y"}[:random.IntN(3)] {
						n, p := uint64(random.IntN(5)), uint64(random.IntN(3))
						stats = append(stats, report(name, 1, zone(in, n, p))...)
						issued[name+in] += n
						if p > 0 {
							says[name+in] = p
						}
					}
				}
				c.Report(stats, nil, now)
				said[c] = says
			}
			w.check(slices.Collect(maps.Keys(said))...)
		}
		for _, c := range w.Take(at(301)) {
			for _, l := range c.GetUpstreamLocalityStats() {
				taken[c.GetClusterName()+l.GetLocality().GetZone()] += l.GetTotalIssuedRequests()
			}
		}
		if !maps.Equal(taken, issued) {
			t.Fatalf("seed %d: %v was reported, and %v taken", seed, issued, taken)
		}
	}
}

// FuzzDecode: the load of a report is what protobuf finds there, or the report is refused.
func FuzzDecode(f *testing.F) {
	whole, err := proto.Marshal(&lrs.LoadStatsRequest{Node: &core.Node{Id: "n"}, ClusterStats: append(report("c", 1, zone("x", 1, 1)), report("d", 1)...)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add([]byte{0x10, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		want := new(lrs.LoadStatsRequest)
		bad := proto.Unmarshal(data, want)
		got, err := Decode(data)
		switch {
		case bad != nil:
		case err != nil:
			t.Fatalf("%x is refused: %v", data, err)
		case !proto.Equal(&lrs.LoadStatsRequest{ClusterStats: got}, &lrs.LoadStatsRequest{ClusterStats: want.GetClusterStats()}):
			t.Fatalf("%x: %v, want %v", data, got, want.GetClusterStats())
		}
		w := newWorld(t, 1<<16)
		c := w.Join()
		c.Report(got, nil, at(1))
		w.check(c)
	})
}
