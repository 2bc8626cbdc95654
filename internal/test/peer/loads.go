package peer

import (
	"strings"
	"sync"
	"time"

	lrs "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Loads is a control plane's load reporting service: it asks each client for some clusters, and adds up what they report.
type Loads struct {
	clusters []string
	every    time.Duration

	mu      sync.Mutex
	issued  map[string]uint64 // requests, by cluster
	reports int
	nodes   map[string]bool
	open    int
}

// NewLoads returns one that wants reports of clusters at an interval.
func NewLoads(every time.Duration, clusters ...string) *Loads {
	return &Loads{clusters: clusters, every: every, issued: make(map[string]uint64), nodes: make(map[string]bool)}
}

// Is reports whether a method is load reporting's.
func (*Loads) Is(method string) bool {
	return strings.HasPrefix(method, "/"+lrs.LoadReportingService_ServiceDesc.ServiceName+"/")
}

// Serve serves one call.
func (l *Loads) Serve(s grpc.ServerStream) error {
	l.note(func() { l.open++ })
	defer l.note(func() { l.open-- })
	for first := true; ; first = false {
		m := new(lrs.LoadStatsRequest)
		if err := s.RecvMsg(m); err != nil {
			return nil //nolint:nilerr // the client is gone
		}
		l.note(func() { l.add(m) })
		if !first {
			continue
		}
		if err := s.SendMsg(&lrs.LoadStatsResponse{Clusters: l.clusters, LoadReportingInterval: durationpb.New(l.every)}); err != nil {
			return err
		}
	}
}

func (l *Loads) note(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

func (l *Loads) add(m *lrs.LoadStatsRequest) {
	l.reports++
	if id := m.GetNode().GetId(); id != "" {
		l.nodes[id] = true
	}
	for _, c := range m.GetClusterStats() {
		for _, locality := range c.GetUpstreamLocalityStats() {
			l.issued[c.GetClusterName()] += locality.GetTotalIssuedRequests()
		}
	}
}

// Issued is how many requests of a cluster were reported.
func (l *Loads) Issued(cluster string) (n uint64) {
	l.note(func() { n = l.issued[cluster] })
	return n
}

// Reports is how many reports came.
func (l *Loads) Reports() (n int) { l.note(func() { n = l.reports }); return n }

// Nodes is how many clients have sent any.
func (l *Loads) Nodes() (n int) { l.note(func() { n = len(l.nodes) }); return n }

// Open is how many calls are open.
func (l *Loads) Open() (n int) { l.note(func() { n = l.open }); return n }
