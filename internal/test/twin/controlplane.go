package twin

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

// controlPlane is an honest Delta server with habits. It says nothing false: what
// it lists exists, and what it removes does not. But it may be late, say things in
// pieces and twice, and keep silent about names that do not exist.
type controlPlane struct {
	number  int    // in the order in which the relay prefers them
	group   int    // whose world it has, where several are played at once
	server  string // what kind it is (servers.go)
	era     int    // how often it was started again
	down    bool
	hung    bool
	world   World
	habits  habits
	bodies  map[string]content // by wire bytes
	counter int                // of labels, versions and nonces
	streams map[int]*serverStream
	once    map[string]Resource // by version: all that ever was
	changes int                 // how often there may have become more to say
	names   []string            // all that there have been
	erred   bool                // it has sent an error in place of an answer
	now     func() time.Time
	timed   map[string]bool // names of which there was something with a TTL
	strict  bool            // of a short server: more than a few names are too long
	between time.Duration   // what its TTLs are longer, so that they end when nothing else happens
	large   bool            // a version in three is too large for a response to a client (ERR-13)
}

// habits are a set of flags.
type habits int

const (
	silent    habits = 1 << iota // names that do not exist are not answered
	resends                      // versions that the relay brings spare it nothing
	errs                         // names that do not exist are answered by an error
	negatives                    // aliases to which nothing answers get a bodyless resource
	poison                       // a stream ends on which FOO is asked for
	eager                        // everything is answered at once
	allHabits = 1<<iota - 1
)

// What the control plane says in its errors.
const (
	errorLater = "later"
	errorNone  = "no"
)

// content is what a body says.
type content struct {
	kind, name, label string
	aliases           []string
}

// serverStream is the server's side of a stream.
type serverStream struct {
	probe bool // nobody is told what it brings
	long  bool // what it has asked for is too long for the server
	inbox []*discovery.DeltaDiscoveryRequest
	lanes map[string]*serverLane // by kind
	sotw  map[string]*sotwLane   // nil: it is a Delta stream
	erred map[string][]string    // names of which it was sent an error, by kind
}

// serverLane is what one stream has asked for and been told, of one type.
type serverLane struct {
	names    map[string]bool
	wildcard bool
	sent     map[string]string    // name, version
	as       map[string][]string  // name, the aliases it was sent with
	owed     map[string]bool      // names to be answered whatever was sent
	lost     map[string]loss      // names that were said to have lost their aliases, until that is taken
	gone     map[string]bool      // names of which it will not speak again (remembers)
	whole    bool                 // the wildcard is to be answered
	ends     map[string]time.Time // name, until when what was sent is good
	parted   bool                 // what was said last was a part, and more is to follow (marks)
	saidAt   int                  // the changes up to which all was said
}

// loss is that a resource has lost the aliases for which a stream was sent it, as a response says
// that waits for its verdict.
type loss struct {
	nonce string
	as    []string // before
}

func newControlPlane(server string) *controlPlane {
	p := &controlPlane{timed: map[string]bool{}, names: poolNames, server: server, changes: 1, world: World{}, bodies: map[string]content{}, once: map[string]Resource{}, streams: map[int]*serverStream{}}
	for _, k := range kinds {
		p.world[k.name] = map[string]Resource{}
	}
	return p
}

func (p *controlPlane) next() int {
	p.counter++
	return p.counter
}

// groupLetters are the letters with which labels and versions of one group begin: in two groups
// nothing is alike.
const groupLetters = 4

// set gives a name new content.
func (p *controlPlane) set(k kind, name string, aliases []string) {
	label := fmt.Sprintf("%c%d", 'v'+p.number-groupLetters*p.group, p.next())
	p.world[k.name][name] = Resource{Label: label, Version: label, Aliases: aliases, TTL: p.world[k.name][name].TTL}
	p.once[label] = p.world[k.name][name]
}

// reversion gives a name another version, and the content that it has (RECON-4).
func (p *controlPlane) reversion(k kind, name string) {
	if r, ok := p.world[k.name][name]; ok {
		r.Version = fmt.Sprintf("%c%d", 'u'-p.number-groupLetters*p.group, p.next())
		p.world[k.name][name], p.once[r.Version] = r, r
	}
}

// endpoints is the name of a cluster's endpoints, or "" if it has none (ORDER-6).
func endpoints(kind, name string) string {
	if kind != "CDS" || name == "d" {
		return ""
	}
	return name
}

// wire is a resource as the server sends it.
func (p *controlPlane) wire(k kind, name string) *discovery.Resource {
	r := p.world[k.name][name]
	label := r.Label
	if p.large && isLarge(label) {
		label += strings.Repeat("+", largestResponse)
	}
	value := []byte(name + "=" + label)
	if k.name == "CDS" {
		c := &cluster.Cluster{Name: name, AltStatName: label}
		if endpoints(k.name, name) != "" {
			c.ClusterDiscoveryType = &cluster.Cluster_Type{Type: cluster.Cluster_EDS}
		}
		value, _ = proto.MarshalOptions{Deterministic: true}.Marshal(c) // it is valid
	}
	p.bodies[string(value)] = content{k.name, name, r.Label, r.Aliases}
	wire := &discovery.Resource{
		Name: name, Version: p.version(r), Aliases: r.Aliases, Resource: &anypb.Any{TypeUrl: k.url, Value: value},
	}
	if r.TTL > 0 {
		wire.Ttl = durationpb.New(r.TTL)
	}
	return wire
}

// read takes in what a stream has asked. refused: the server ends the stream.
func (p *controlPlane) read(s *serverStream) (refused bool) {
	if len(s.inbox) > 0 {
		p.changes++
	}
	for _, req := range s.inbox {
		k := kindOf(req.GetTypeUrl())
		if req.GetResponseNonce() != "" {
			p.judged(s.lanes[k.name], req)
			continue
		}
		if k.name == "FOO" && p.habits&poison != 0 {
			return true
		}
		if p.tooLong(req) {
			s.long = true
			return true
		}
		if p.is(picky) && req.GetNode() == nil {
			continue
		}
		l := s.lanes[k.name]
		if l == nil {
			l = &serverLane{names: map[string]bool{}, sent: map[string]string{}, as: map[string][]string{}, owed: map[string]bool{}, lost: map[string]loss{}, gone: map[string]bool{}, ends: map[string]time.Time{}}
			s.lanes[k.name] = l
			p.resume(l, req, p.world[k.name])
			l.whole = l.whole || s.sotw != nil && k.full
			p.subscribe(k, l, req, true)
		} else {
			p.subscribe(k, l, req, false)
		}
	}
	s.inbox = nil
	return false
}

// judged: what a NACK names is sent again; the client has not taken all of it.
func (p *controlPlane) judged(l *serverLane, req *discovery.DeltaDiscoveryRequest) {
	if req.GetErrorDetail() != nil {
		for name := range l.sent {
			l.sent[name] = "?"
		}
		for name := range l.names {
			l.owed[name] = true
		}
		for name, lost := range l.lost {
			if lost.nonce == req.GetResponseNonce() {
				l.sent[name], l.as[name] = "?", lost.as
			}
		}
	}
	maps.DeleteFunc(l.lost, func(_ string, lost loss) bool { return lost.nonce == req.GetResponseNonce() })
}

// resume takes in the first request of a type: what the client has needs no answer.
func (p *controlPlane) resume(l *serverLane, req *discovery.DeltaDiscoveryRequest, world map[string]Resource) {
	l.wildcard = len(req.GetResourceNamesSubscribe()) == 0
	for name, version := range p.shown(req) {
		l.sent[name], l.as[name] = version, p.earlier(version).Aliases
		// What has had a TTL may have run out since the version was shown.
		if _, is := world[name]; is && (p.habits&resends != 0 || p.timed[name]) {
			l.sent[name] = "?" // sent again, or removed if it is gone
		}
	}
	l.whole = l.wildcard && p.answersAll(l)
}

// subscribe takes in what is asked for and given up. first: it is the type's first
// request on the stream.
func (p *controlPlane) subscribe(k kind, l *serverLane, req *discovery.DeltaDiscoveryRequest, first bool) {
	world, shown := p.world[k.name], p.shown(req)
	for _, name := range req.GetResourceNamesSubscribe() {
		if name == wildcard {
			l.wildcard, l.whole = true, p.answersAll(l)
			continue
		}
		l.names[name] = true
		switch r, ok := world[name]; {
		case p.believes(k, l, name), first && p.is(ignores) && !ok:
		case !ok || l.sent[name] != p.version(r) || len(shown) == 0:
			l.owed[name] = true
		}
	}
	for _, name := range req.GetResourceNamesUnsubscribe() {
		if name == wildcard {
			l.wildcard, l.whole = false, false
		}
		delete(l.names, name)
		delete(l.owed, name)
		p.givenUp(k, l, name)
	}
	for name := range l.sent {
		if _, mapped := shown[name]; !mapped && !p.wants(k, l, name, l.as[name]) {
			delete(l.sent, name) // the client has dropped it
		}
	}
}

func (p *controlPlane) wants(k kind, l *serverLane, name string, aliases []string) bool {
	i := Interest{Names: l.names, Wildcard: l.wildcard || p.everything(k, l)}
	return i.Covers(name, aliases)
}

// push is the next response of a type on a stream, or nil. pieces, if not zero, says
// which of the names may be in it.
func (p *controlPlane) push(k kind, l *serverLane, pieces int) *discovery.DeltaDiscoveryResponse {
	p.lapse(k, l)
	if pieces == 0 {
		if l.saidAt == p.changes {
			return nil
		}
		l.saidAt = p.changes
	}
	resp := &discovery.DeltaDiscoveryResponse{TypeUrl: k.url}
	world := p.world[k.name]
	for i, name := range p.names {
		if pieces != 0 && pieces>>(i%len(poolNames))&1 == 0 {
			continue
		}
		if r, ok := world[name]; ok {
			p.pushPresent(resp, l, k, name, r)
		} else if _, sent := l.sent[name]; sent {
			resp.RemovedResources = append(resp.RemovedResources, name)
			p.hasGone(k, l, name)
		}
	}
	listed, removed := map[string]bool{}, map[string]bool{}
	for _, r := range resp.Resources {
		listed[r.GetName()] = true
	}
	for _, name := range resp.RemovedResources {
		removed[name] = true
	}
	for _, asked := range slices.Sorted(maps.Keys(l.owed)) {
		p.answer(resp, l, k, asked, listed, removed[asked])
	}
	ends := l.parted && p.left(k, l) == 0
	if len(resp.Resources)+len(resp.RemovedResources)+len(resp.ResourceErrors) == 0 && !l.whole && !ends {
		return nil
	}
	l.whole = false
	resp.Nonce = p.nonce(k, l)
	for name, lost := range l.lost {
		if lost.nonce == "" {
			l.lost[name] = loss{resp.Nonce, lost.as}
		}
	}
	return resp
}

func (p *controlPlane) pushPresent(resp *discovery.DeltaDiscoveryResponse, l *serverLane, k kind, name string, r Resource) {
	if l.gone[name] {
		return
	}
	owed := l.owed[name] || slices.ContainsFunc(r.Aliases, func(alias string) bool { return l.owed[alias] })
	version, sent := l.sent[name]
	wants := p.wants(k, l, name, r.Aliases)
	if wants && (owed || version != p.version(r)) || !wants && sent {
		resp.Resources = append(resp.Resources, p.wire(k, name))
		p.expires(l, name, r.TTL)
	}
	if !wants && sent {
		l.lost[name] = loss{as: l.as[name]} // of a response without a nonce yet
	}
	l.sent[name], l.as[name] = p.version(r), r.Aliases
	if !wants {
		delete(l.sent, name) // it has lost the alias it was sent for, and says so
	}
}

// answer answers a name that was asked for, as far as push has not, which has listed some
// resources, and perhaps removed the name.
func (p *controlPlane) answer(resp *discovery.DeltaDiscoveryResponse, l *serverLane, k kind, asked string, listed map[string]bool, removed bool) {
	matched := false
	for _, name := range leading(asked) {
		if r, ok := p.world[k.name][name]; ok && !l.gone[name] && answers(name, r.Aliases, asked) {
			if !listed[name] {
				return // in another piece
			}
			matched = true
		}
	}
	delete(l.owed, asked)
	switch {
	case matched || removed || p.habits&silent != 0, p.is(remembers):
	case p.habits&errs != 0:
		resp.ResourceErrors = append(resp.ResourceErrors, &discovery.ResourceError{
			ResourceName: &discovery.ResourceName{Name: asked}, ErrorDetail: &statuspb.Status{Code: 5, Message: errorNone},
		})
	case p.habits&negatives != 0 && !k.full && slices.Contains(poolAliases, asked):
		resp.Resources = append(resp.Resources, &discovery.Resource{Name: "no/" + asked, Aliases: []string{asked}})
	default:
		resp.RemovedResources = append(resp.RemovedResources, asked)
	}
}

// again makes the server forget what it has sent: everything comes once more.
func (p *controlPlane) again(s *serverStream, k kind) {
	if l := s.lanes[k.name]; l != nil {
		for name := range l.sent {
			l.sent[name] = "?"
		}
	}
}

// noteSent: a resource was sent though it was not asked for.
func (p *controlPlane) noteSent(k kind, l *serverLane, name string, r Resource) {
	if l != nil && p.wants(k, l, name, r.Aliases) {
		p.expires(l, name, r.TTL)
		l.sent[name], l.as[name] = p.version(r), r.Aliases
		delete(l.gone, name)
	}
}

// owe makes the server answer every name that it is asked for once more, and say what has become
// of those members of which it has sent an error (ERR-8).
func (p *controlPlane) owe() {
	for _, s := range p.streams {
		p.read(s)
		for kind, l := range s.lanes {
			for name := range l.names {
				l.owed[name] = true
			}
			for _, name := range s.erred[kind] {
				if l.wildcard && s.sotw == nil {
					l.sent[name] = "?"
				}
			}
		}
	}
}

// refuse ends a stream on which a type is asked for that the control plane does not
// take, or by too long a request.
func (g *Game) refuse(id int) {
	if _, s := g.server(id); s.long {
		g.relay.End(id, 4)
		return
	}
	g.relay.End(id, 3)
}
