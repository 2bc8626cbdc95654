//go:build linux

package chaos

import (
	"context"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// silence is a control plane that can fall silent without a word: connections stay,
// nothing comes on them, and nobody says why.
type silence struct {
	up *upstream
	// in is the network that the relay is in.
	in *namespace
	// address is where the relay finds the control plane.
	address string
	// fall makes it fall silent, or speak again.
	fall func(on bool)
}

// noSilence is one that never does.
func noSilence(t *testing.T, h *history) *silence {
	up := startUpstream(t, h)
	return &silence{up: up, address: up.addr, fall: func(bool) {}}
}

// frozen stands still: its system goes on to acknowledge what comes, and to accept
// connections.
func frozen(t *testing.T, h *history) *silence {
	up := startUpstream(t, h)
	return &silence{up: up, address: up.addr, fall: func(on bool) {
		if on {
			up.p.Signal(syscall.SIGSTOP)
		} else {
			up.p.Signal(syscall.SIGCONT)
		}
	}}
}

// heldBack is behind a proxy that keeps back what goes either way.
func heldBack(t *testing.T, h *history) *silence {
	up := startUpstream(t, h)
	link := peer.StartLink(t, up.addr)
	return &silence{up: up, address: link.Addr, fall: func(on bool) {
		if on {
			link.Freeze()
		} else {
			link.Thaw()
		}
	}}
}

// unplugged is at the far end of a cable, and that end is set down: packets are lost
// both ways, and nothing is acknowledged, or accepted.
func unplugged(t *testing.T, h *history) *silence {
	near, c := newCable(t)
	up := startUpstreamIn(t, h, c.far, farIP+":15010")
	return &silence{up: up, in: near, address: up.addr, fall: c.cut}
}

// timing is how long things take.
type timing struct {
	sets                    []string // what the relay is told about it
	dne, failover, failback time.Duration
	silence                 time.Duration
	// stays is for how long a fallback is watched that nobody asks for anything.
	stays   time.Duration
	clients fleetSize
}

// usualTiming is the relay's default in the long form.
func usualTiming() timing {
	if long() {
		return timing{
			sets: []string{"upstream.backoff.initial=1s", "upstream.backoff.max=10s"}, // the defaults
			dne:  15 * time.Second, failover: time.Minute, failback: 30 * time.Second,
			silence: time.Minute, stays: 10 * time.Second,
			clients: fleetSize{clients: 200, sotw: 20, names: 4},
		}
	}
	return timing{
		sets: []string{
			"timers.dne_timeout=3s", "timers.unavailable_after=1s", "upstream.failover_after=4s", "upstream.failback_after=2s",
		},
		dne: 3 * time.Second, failover: 4 * time.Second, failback: 2 * time.Second,
		silence: 8 * time.Second, stays: 3 * time.Second,
		clients: fleetSize{clients: 40, sotw: 4, names: 4},
	}
}

// silenceLoad describes what play plays.
const silenceLoad = "200 clients that have all they want, 4 gRPC applications (grpc-go's own xDS client) that call all the time. Unless it is said that nobody asks: from then on, each second, a Delta and a SotW client that ask for 4 names that nobody has asked for, and a Delta client that asks for 4 that others have; each 3 s a gRPC application of a new service, and one of an old service. Everything exists, nothing is ever removed; 5 updates/s meanwhile. All timers of the relay are at their defaults; the short form has 40 clients, dne_timeout 3 s, unavailable_after 1 s, failover_after 4 s, failback_after 2 s and a silence of 8 s"

// plan is what a part does.
type plan struct {
	start func(*testing.T, *history) *silence
	// fallback: there is a second control plane, which never falls silent.
	fallback bool
	// idle: nobody asks for anything meanwhile.
	idle bool
	// heard: the control plane does not fall silent at all.
	heard bool
}

// play lets a control plane fall silent for a while, and judges what clients hear.
func (p plan) play(t *testing.T, r *report) {
	now := usualTiming()
	w := usual()
	w.RemoveOneIn = 0 // any removal is one too many
	w.Endpoints, w.Services, w.Backend = 3000, 60, startBackend(t)
	h := newHistory(w)
	s := p.start(t, h)
	sets := now.sets
	var fallback *upstream
	if p.fallback {
		fallback = startUpstreamIn(t, h, s.in, peer.Address(t))
		s.up.followers = append(s.up.followers, fallback)
		sets = append(sets, fmt.Sprintf(`upstream.fallbacks=[{"address":%q}]`, fallback.addr))
	}
	var relay *peer.Relay
	if s.in == nil {
		relay = startRelay(t, s.address, sets...)
	} else {
		relay = newRelayIn(t, s.in, s.address, append(sets, "upstream.insecure=true")...)
		relay.Start()
	}
	r.fleet = startFleet(t, h, relay.Addr, now.clients)
	a := newApps(t, peer.Target(relay.Addr))
	for i := range 4 {
		a.Start(serviceName(i))
	}
	a.reach(a.all)
	stop := s.up.Churn(20)
	pause(context.Background(), span(2*time.Second))
	stop()
	r.fleet.Converge()

	before := h.target()
	s.fall(true)
	begun := time.Now()
	var asked time.Time
	if p.idle {
		pause(context.Background(), now.silence)
	} else {
		asked = time.Now()
		stop = s.up.Churn(5)
		old, apps := p.newcomers(r.fleet, a, relay, now.silence)
		stop()
		r.tell("who asked for what was known was served after", seconds(max(r.fleet.reach(old, before), a.reach(apps))), "s")
	}
	p.judgeSilence(r, relay, fallback, now, asked, begun)
	lasted := time.Since(begun)
	s.fall(false)

	r.tell("silence", seconds(lasted), "s")
	again := time.Now()
	s.up.Step()
	r.fleet.Converge()
	r.tell("all clients converged after it", seconds(time.Since(again)), "s")
	a.reach(a.all)
	r.tell("all gRPC clients answered after it", seconds(time.Since(again)), "s")
	if p.fallback {
		peer.Eventually(t, now.failback+patience, func() error {
			if p, f := s.up.Stats(), fallback.Stats(); p.Open == 0 || f.Open > 0 {
				return fmt.Errorf("the relay has %d streams to the preferred control plane and %d to the fallback", p.Open, f.Open)
			}
			return nil
		})
		took := time.Since(again)
		r.holds("the preferred control plane alone in use after", seconds(took), "s",
			fmt.Sprintf(">= %v", now.failback), took >= now.failback)
	}
	stop = s.up.Churn(20)
	pause(context.Background(), span(2*time.Second))
	stop()
	r.fleet.Converge()

	r.tell("clients at the end", float64(len(r.fleet.clients)), "")
	r.sound()
	r.none("removals", r.fleet.removals.Load())
	r.connected()
	a.judge(r)
}

// newcomers lets clients come while there is silence; it returns those that ask for
// nothing new.
func (p plan) newcomers(f *fleet, a *apps, relay *peer.Relay, span time.Duration) (old []*client, oldApps []*app) {
	first := len(a.all)
	for i, begin := 0, time.Now(); time.Since(begin) < span; i++ {
		f.Add(relay.Addr, fleetSize{clients: 2, sotw: 1, names: 4})
		old = append(old, f.Add(relay.Addr, fleetSize{clients: 1, names: 4, old: true})...)
		if i%3 == 0 {
			a.Start(serviceName(first + i/3))
			oldApps = append(oldApps, a.Start(serviceName(i/3%first)))
		}
		pause(context.Background(), time.Second)
	}
	return old, oldApps
}

// judgeSilence adds what the relay has made of the silence, which lasts.
func (p plan) judgeSilence(r *report, relay *peer.Relay, fallback *upstream, now timing, asked, begun time.Time) {
	r.t.Helper()
	code, _, err := relay.Get("/readyz")
	r.holds("answer of /readyz", float64(code), "", "200", err == nil && code == http.StatusOK)
	switch {
	case p.heard:
		r.tell("new names answered after at most", seconds(r.fleet.Converge()), "s")
	case p.fallback && p.idle:
		// The check comes after half the time, and the failing lasts all of it.
		limit := now.failover*3/2 + now.dne*2/3
		peer.Eventually(r.t, limit+patience, func() error {
			if fallback.Stats().First == 0 {
				return fmt.Errorf("the fallback is not in use")
			}
			return nil
		})
		r.below("fallback in use after the beginning of the silence", time.Unix(0, fallback.Stats().First).Sub(begun).Seconds(), limit.Seconds(), "s")
		pause(context.Background(), now.stays)
		stays(r, fallback)
	case p.fallback:
		first := fallback.Stats().First
		r.holds("fallback in use before the end of the silence", count(first != 0), "", "1", first != 0)
		if first != 0 {
			r.below("fallback in use after the first unanswered subscribe", time.Unix(0, first).Sub(asked).Seconds(), 15, "s")
			r.fleet.Converge()
		}
		stays(r, fallback)
	case !p.idle:
		n := relay.Metrics()["xds_relay_upstream_connected"]
		r.holds("upstream_connected at the end of the silence", n, "", "0", n == 0)
		r.holds("lines in the relay's log that tell of it", count(logged(relay)), "", "1", logged(relay))
	}
}

// stays adds that the relay has not left its fallback since it turned to it: the
// other has not answered yet.
func stays(r *report, fallback *upstream) {
	r.t.Helper()
	s := fallback.Stats()
	r.holds("streams to the fallback in the silence", float64(s.Open), "", ">= 1", s.Open >= 1)
	r.none("streams to it that ended in the silence", s.Streams-s.Open)
}

// logged: the relay has said something of its control plane.
func logged(r *peer.Relay) bool { return r.Output.Has(`"component":"upstream"`) }

// R27: the control plane stands still, while clients ask for what exists.
func TestR27_Frozen(t *testing.T) {
	r := begin(t, "R27", "control plane frozen (SIGSTOP) for 60 s while clients, real gRPC ones among them, ask for names that exist: 0 false removals, 0 \"does not exist\"; a fallback, if there is one, in use within 15 s of the first unanswered subscribe; the same while nobody asks: the fallback in use after failover_after", silenceLoad)
	r.part(t, "not frozen", plan{start: noSilence, heard: true}.play)
	r.part(t, "frozen", plan{start: frozen}.play)
	r.part(t, "frozen, with a fallback", plan{start: frozen, fallback: true}.play)
	r.part(t, "frozen, nobody asks, with a fallback", plan{start: frozen, fallback: true, idle: true}.play)
	if long() {
		r.part(t, "frozen, nobody asks", plan{start: frozen, idle: true}.play)
	}
}

// R28: packets are lost both ways, and there is no RST.
func TestR28_CutOff(t *testing.T) {
	r := begin(t, "R28", "the same with packets dropped both ways and no RST", silenceLoad+". Once the control plane is at the far end of a veth pair, in a network of its own, and that end is set down, so that nothing is acknowledged (root); once it is behind a proxy that keeps everything back")
	r.part(t, "held back, with a fallback", plan{start: heldBack, fallback: true}.play)
	r.part(t, "far end down, with a fallback", plan{start: unplugged, fallback: true}.play)
	if !long() {
		return
	}
	r.part(t, "held back", plan{start: heldBack}.play)
	r.part(t, "held back, nobody asks", plan{start: heldBack, idle: true}.play)
	r.part(t, "held back, nobody asks, with a fallback", plan{start: heldBack, fallback: true, idle: true}.play)
	r.part(t, "far end down", plan{start: unplugged}.play)
	r.part(t, "far end down, nobody asks", plan{start: unplugged, idle: true}.play)
	r.part(t, "far end down, nobody asks, with a fallback", plan{start: unplugged, fallback: true, idle: true}.play)
}
