package twin

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
	upsession "github.com/xds-relay/xds-relay/upstream/session"
)

// tiny are the bounds of a relay, of which some are tiny.
type tiny struct {
	hub     fanout.Bounds
	session session.Bounds
	core    upsession.Bounds
	config  []string // settings
	request int      // the longest to the control plane, on the pure cores; 0: any
	trials  bool     // types that were never answered go up alone first (UP-21)
}

// smallResponse is room for one resource of any type, in the wrapper with a TTL, on the pure cores.
const smallResponse = 430

// bounds are those that a game can make tiny. It draws each by itself, so that what is beyond a bound, and beyond two of
// them at once, is played as often as what is within.
var bounds = map[string]func(*tiny){
	"request":  func(t *tiny) { t.request = tight },                                                        // what is asked for goes over several requests (UP-17)
	"least":    func(t *tiny) { t.core.MinRequest = tight },                                                // what a server refuses as too long may be cut down as far (UP-17)
	"response": func(t *tiny) { t.set(fmt.Sprintf("downstream.max_response_bytes=%dB", largestResponse)) }, // one has room for a resource or two (DOWN-DELTA-18)
	"linger":   func(t *tiny) { t.set("cache.max_lingering_names=1") },                                     // one name of a type lingers (UP-7)
	"unasked":  func(t *tiny) { t.set("cache.max_unasked_bytes=150B") },                                    // there is room for two resources that nobody has asked for (UP-9)
	"gone":     func(t *tiny) { t.hub.Gone = 1 },                                                           // the name of one such resource is remembered
	"streams":  func(t *tiny) { t.set("upstream.max_streams_per_connection=2") },                           // a connection to the control plane carries one stream, over gRPC (UP-1)
	"part":     func(t *tiny) { t.core.Part = 1 },                                                          // what is asked for goes up name by name (UP-17)
	"names":    func(t *tiny) { t.hub.Part = 1 },                                                           // what a request asks for is taken in name by name
	"prune":    func(t *tiny) { t.hub.Tombstones = func(int) int { return 0 } },                            // what is gone is forgotten once every client was sent that
	"marks":    func(t *tiny) { t.hub.Marks = 0 },                                                          // repetitions of what changed are dropped at once
	"news":     func(t *tiny) { t.hub.News = 1 },                                                           // clients that lag behind differently share nothing
	"leaving":  func(t *tiny) { t.hub.Leaving = 1 },                                                        // what left last is remembered, and nothing that left before it (ORDER-2)
	"share":    func(t *tiny) { t.session.Block = 1 },                                                      // what clients share is not copied into one piece
	"unacked":  func(t *tiny) { t.session.Unacked = 2 },                                                    // few nonces are remembered
	"pair":     func(t *tiny) { t.core.Pair = 1 },                                                          // one name at a time is asked for again (UP-19)
	"probed":   func(t *tiny) { t.core.Probed = 1 },                                                        // a probe asks for one name (UP-14)
	"verdicts": func(t *tiny) { t.core.Acks = 1 },                                                          // a control plane may not send two responses without reading
	"solo":     func(t *tiny) { t.core.Solo, t.core.Quarantined = 2, 1 },                                   // one type is remembered as refused (H-39); it may be wanted both ways
	"trials":   func(t *tiny) { t.trials = true },                                                          // types that were never answered go up alone first
}

func (t *tiny) set(setting string) { t.config = append(t.config, setting) }

// bounded is what a game's settings make of the bounds.
func bounded(s Settings) *tiny {
	t := &tiny{hub: fanout.DefaultBounds, session: session.DefaultBounds, core: upsession.DefaultBounds}
	for bound, shrink := range bounds {
		if s.Bounded(bound) {
			shrink(t)
		}
	}
	return t
}

// drawBounds takes each bound half of the time, and in one game of eight none, and in one all of them.
func drawBounds(r *rand.Rand) (drawn []string) {
	often := oneOf(r, 0, 4, 4, 4, 4, 4, 4, 8)
	for _, bound := range slices.Sorted(maps.Keys(bounds)) {
		if r.IntN(8) < often {
			drawn = append(drawn, bound)
		}
	}
	return drawn
}
