package twin

import (
	"fmt"
	"strings"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
)

// The kinds of server besides the plain one. A game's server may be of several of them at once, for all
// of the game (Settings.Server). All are honest: what they say is true, though some keep silent.
const (
	// remembers: it keeps for each stream what it has said, and never says that again. A
	// subscribe that it believes answered it leaves unanswered, and so one to a name whose
	// removal it has sent, unless that was given up since. Of a full-state type it sends
	// everything to whoever asks for anything, and that is what it believes to be known.
	// What never was it is silent about. (java-control-plane, go-control-plane)
	remembers = "remembers"
	// ignores: the versions that a stream begins with tell it nothing. It announces all
	// that is asked for, and does not say what is gone. (Diderot, older Istio)
	ignores = "ignores"
	// picky: it answers no request that does not say from what node it comes.
	// (java-control-plane)
	picky = "picky"
	// short: it refuses requests that are longer than it likes, with the stream, and does not
	// say how long they may be. (UP-17)
	short = "short"
	// marks: it may answer in parts, and each says in its nonce how many follow; the relay is
	// told so. (another relay, RECON-16)
	marks = "marks"
	// renumbers: another process has other versions for the same content.
	renumbers = "renumbers"
)

// tight is room in a request for the node, a type and a few names. largestResponse is what bounds a response over
// gRPC, in bytes: no less can be configured.
const (
	tight           = 95
	largestResponse = 512
)

func (p *controlPlane) is(kind string) bool { return strings.Contains(p.server, kind) }

// second is another control plane beside this one: with the same world, or its own. Its
// versions are its own in any case.
func (p *controlPlane) second(same bool) *controlPlane {
	o := newControlPlane(p.server)
	o.number, o.bodies, o.once, o.counter, o.strict, o.large, o.now = 1, p.bodies, p.once, p.counter, p.strict, p.large, p.now
	if same {
		o.world, o.timed = p.world, p.timed
	}
	return o
}

// restart: it is another process now, which has no streams.
func (p *controlPlane) restart() {
	if p.is(renumbers) {
		p.era++
	}
}

// version is the server's version of a resource's content: each process, and each control plane, may have
// its own.
func (p *controlPlane) version(r Resource) string {
	if p.number == 0 && p.era == 0 {
		return r.Version
	}
	return fmt.Sprintf("%s/%d.%d", r.Version, p.number, p.era)
}

// earlier is the resource that a version has stood for.
func (p *controlPlane) earlier(version string) Resource {
	version, _, _ = strings.Cut(version, "/")
	return p.once[version]
}

// hasGone notes what was said to be gone. A server that remembers never announces it
// again, unless it announces all there is.
func (p *controlPlane) hasGone(k kind, l *serverLane, name string) {
	delete(l.sent, name)
	delete(l.ends, name)
	delete(l.owed, name)
	if p.is(remembers) && l.names[name] && !p.everything(k, l) {
		l.gone[name] = true
	}
}

// believes tells whether a server that remembers has nothing to say to a subscribe.
func (p *controlPlane) believes(k kind, l *serverLane, name string) bool {
	r, ok := p.world[k.name][name]
	return p.is(remembers) && (l.gone[name] || ok && l.sent[name] == p.version(r))
}

// givenUp: a name is unsubscribed. A server that remembers forgets that it has said that
// it is gone and, except for full-state types, that it has sent it.
func (p *controlPlane) givenUp(k kind, l *serverLane, name string) {
	for gone := range l.gone {
		if answers(gone, p.world[k.name][gone].Aliases, name) {
			delete(l.gone, gone)
		}
	}
	if p.is(remembers) && !k.full && !p.wants(k, l, name, l.as[name]) {
		delete(l.sent, name)
	}
}

// everything tells whether a stream is sent all of a type, because it has asked for some.
func (p *controlPlane) everything(k kind, l *serverLane) bool {
	return p.is(remembers) && k.full && (l.wildcard || len(l.names) > 0)
}

// answersAll tells whether a wildcard is answered though there is no difference to tell.
func (p *controlPlane) answersAll(l *serverLane) bool { return !p.is(remembers) || len(l.sent) == 0 }

// shown are the versions that a server takes notice of.
func (p *controlPlane) shown(req *discovery.DeltaDiscoveryRequest) map[string]string {
	if p.is(ignores) {
		return nil
	}
	return req.GetInitialResourceVersions()
}

// tooLong tells whether a request is refused for its length. What a game of few names asks
// for is refused where the relay could ask for less ("least"), and else what is longer than
// it ever has to be.
func (p *controlPlane) tooLong(req *discovery.DeltaDiscoveryRequest) bool {
	limit := (64 << 10) + (2 << 10)
	if p.strict {
		limit = tight + 5
	}
	return p.is(short) && req.GetResponseNonce() == "" && proto.Size(req) > limit
}

// nonce is that of a response of a type, as the server has it: with how much is left to be
// said on the stream, if it says so.
func (p *controlPlane) nonce(k kind, l *serverLane) string {
	nonce := fmt.Sprintf("n%d", p.next())
	if !p.is(marks) {
		return nonce
	}
	left := 0
	if l != nil {
		left = p.left(k, l)
		l.parted = left > 0
	}
	return fmt.Sprintf("%s-%d", nonce, left)
}

// left is how many resources a stream is yet to be sent.
func (p *controlPlane) left(k kind, l *serverLane) (n int) {
	for name, r := range p.world[k.name] {
		if p.wants(k, l, name, r.Aliases) && !l.gone[name] && l.sent[name] != p.version(r) {
			n++
		}
	}
	return n
}
