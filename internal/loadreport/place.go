package loadreport

import (
	"math"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// entry is the part of the Room that something takes.
type entry struct {
	by    *Client // who has named it first
	bytes int
	said  bool // in a report since the last one was taken
}

// place is where load goes to: a locality, or an endpoint.
type place struct {
	entry

	// Of the interval.
	successful, failed, issued, opened, unopened uint64
	metrics                                      map[string]*metric

	// Of the clients that say so now, which are so many.
	requests, connections uint64
	clients               int
}

// metric is a sum of values, and of how many there were.
type metric struct {
	entry
	finished uint64
	total    float64
}

// reported is what the messages of localities and endpoints have in common.
type reported interface {
	GetTotalSuccessfulRequests() uint64
	GetTotalErrorRequests() uint64
	GetTotalIssuedRequests() uint64
	GetTotalRequestsInProgress() uint64
	GetLoadMetricStats() []*endpoint.EndpointLoadMetricStats
}

// locality is a place in a cluster.
type locality struct {
	place
	cpu, memory, application metric
	endpoints                map[address]*host
}

// localityKey is by which localities are told apart.
type localityKey struct {
	region, zone, subZone string
	priority              uint32
}

func keyOf(l *endpoint.UpstreamLocalityStats) localityKey {
	at := l.GetLocality()
	return localityKey{at.GetRegion(), at.GetZone(), at.GetSubZone(), l.GetPriority()}
}

func (k localityKey) size() int { return localityBytes + len(k.region) + len(k.zone) + len(k.subZone) }

// host is an endpoint.
type host struct {
	place
	address  *core.Address
	metadata *structpb.Struct
}

// address is by which endpoints are told apart: host and port of the usual ones, or else all that the address says.
type address struct {
	host string
	port uint32
	rest string
}

func addressOf(a *core.Address) address {
	if s := a.GetSocketAddress(); s != nil && usual(s) {
		return address{host: s.GetAddress(), port: s.GetPortValue()}
	}
	return address{rest: a.String()} // always the same within a process
}

// usual: host and port say all of an address.
func usual(s *core.SocketAddress) bool {
	_, port := s.GetPortSpecifier().(*core.SocketAddress_PortValue)
	plain := s.GetProtocol() == core.SocketAddress_TCP && s.GetResolverName() == ""
	return port && plain && s.GetNetworkNamespaceFilepath() == ""
}

// decoded is about how many times its bytes on the wire a Struct takes.
const decoded = 10

// sizeOf is what an endpoint says of itself, in bytes of memory.
func sizeOf(e *endpoint.UpstreamEndpointStats) int {
	return 2*proto.Size(e.GetAddress()) + decoded*proto.Size(e.GetMetadata()) // the address is a key, too
}

// mostInProgress bounds what one client may have in progress, so that no sum of these overflows.
const mostInProgress = 1 << 48

// plus adds, and stays at the largest number.
func plus(to *uint64, n uint64) {
	if *to += n; *to < n {
		*to = math.MaxUint64
	}
}

func (m *metric) add(finished uint64, total float64) {
	m.said = true
	plus(&m.finished, finished)
	if sum := m.total + total; finite(sum) {
		m.total = sum
	}
}

// finite: the value can be added up.
func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// count adds the counters of a report.
func (p *place) count(r reported) {
	p.said = true
	plus(&p.successful, r.GetTotalSuccessfulRequests())
	plus(&p.failed, r.GetTotalErrorRequests())
	plus(&p.issued, r.GetTotalIssuedRequests())
}

// idle: nobody has mentioned the place in this interval, nor has anything in progress there.
func (p *place) idle() bool { return !p.said && p.clients == 0 }

// idle: as that of a place, at the locality and at each of its endpoints.
func (l *locality) idle() bool {
	for _, h := range l.endpoints {
		if !h.idle() {
			return false
		}
	}
	return l.place.idle()
}

// reset begins another interval.
func (p *place) reset() {
	p.said = false
	p.successful, p.failed, p.issued, p.opened, p.unopened = 0, 0, 0, 0, 0
}
