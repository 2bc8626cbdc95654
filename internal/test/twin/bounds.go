package twin

import (
	"slices"
	"strings"
)

// The bounds of the relay, which a game can make tiny. A game draws each by itself, so that what is beyond
// a bound, and beyond two of them at once, is played as often as what is within.
const (
	boundRequest   = "request"   // what is asked for goes over several requests (UP-17)
	boundLinger    = "linger"    // one name of a type lingers (UP-7)
	boundPrune     = "prune"     // what is gone is forgotten once every client was sent that
	boundMarks     = "marks"     // repetitions of what changed are dropped at once
	boundNews      = "news"      // clients that lag behind differently share nothing
	boundShare     = "share"     // what clients share is not copied into one piece
	boundPile      = "pile"      // nothing: it has its place in the draws, and in scripts
	boundUnacked   = "unacked"   // few nonces are remembered
	boundUnasked   = "unasked"   // there is room for two resources that nobody has asked for (UP-9)
	boundGone      = "gone"      // the name of one such resource is remembered
	boundPair      = "pair"      // one name at a time is asked for again (UP-19)
	boundProbed    = "probed"    // a probe asks for one name (UP-14)
	boundVerdicts  = "verdicts"  // a control plane may not send two responses without reading
	boundSolo      = "solo"      // one type is remembered as refused (H-39)
	boundPairBytes = "pairbytes" // the same as boundPair
	boundLeast     = "least"     // what a server refuses as too long may be cut down to a few names (UP-17)
	boundResponse  = "response"  // a response to a Delta client has room for a resource or two (DOWN-DELTA-18)
	boundLeaving   = "leaving"   // what left last is remembered, and nothing that left before it (ORDER-2)
	boundTrials    = "trials"    // types that were never answered go up alone first (UP-21)
	boundStreams   = "streams"   // a connection to the control plane carries one stream, over gRPC (UP-1)
)

// largestResponse is what bounds a response over gRPC, in bytes: no less can be configured.
// smallResponse is room for one resource of any type, in the wrapper with a TTL, on the pure cores.
const (
	largestResponse = 512
	smallResponse   = 430
)

// tight is room for the node, a type and a few names: what is asked for goes over several
// requests (UP-17).
const tight = 95

// allBounds are those that a game draws from.
var allBounds = []string{
	boundRequest, boundLinger, boundPrune, boundMarks, boundNews, boundShare, boundPile,
	boundUnacked, boundUnasked, boundGone, boundPair, boundProbed, boundVerdicts, boundSolo,
}

// laterBounds are those that were added when the others had their place in the draws.
var laterBounds = []string{boundPairBytes, boundLeast, boundResponse, boundStreams}

// lastBounds are those that were added when these had theirs.
var lastBounds = []string{boundLeaving, boundTrials}

// smallBounds are what "bounds small" stands for in scripts that are older than the others.
var smallBounds = []string{boundRequest, boundLinger, boundPrune}

// Bounded reports whether a bound is tiny in this game.
func (s *Settings) Bounded(what string) bool {
	if s.Bounds == "small" {
		return slices.Contains(smallBounds, what)
	}
	return slices.Contains(strings.Split(s.Bounds, ","), what)
}

// Splits reports whether what is asked for may not fit into one request (UP-17).
func (s *Settings) Splits() bool {
	return s.Bounded(boundRequest) || strings.Contains(s.Server, short)
}
