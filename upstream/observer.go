package upstream

import (
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/upstream/session"
)

// Observer is told what happens on the streams to the control plane, for metrics.
// Its methods are called from several goroutines, under no lock.
type Observer interface {
	// UpstreamConnected: a stream opened, or ended.
	UpstreamConnected(s Stream, up bool)
	// UpstreamReconnect: the next attempt is due after a wait, for a reason out of a closed set.
	UpstreamReconnect(role session.Role, reason string, wait time.Duration)
	// UpstreamConnection: a connection to an entry was made, or is over (UP-1).
	UpstreamConnection(entry string, up bool)
	// UpstreamCheck: an entry was asked whether anybody is there (MISS-3).
	UpstreamCheck(entry string, v session.CheckResult)
	// UpstreamResponse: a response came, with so many resources and removals.
	UpstreamResponse(t cache.TypeURL, set, removed int)
	// UpstreamNack: a response was not structurally sound.
	UpstreamNack(t cache.TypeURL)
	// UpstreamDropped: a response was not used, for a reason out of a closed set.
	UpstreamDropped(reason string)
	// UpstreamUnasked: so many resources that nobody had asked for were dropped (UP-9).
	UpstreamUnasked(t cache.TypeURL, n int)
	// UpstreamLeftOut: so many names were left out of a list that has no room for them (UP-21).
	UpstreamLeftOut(t cache.TypeURL, n int)
	// UpstreamQuarantine: a type was convicted, or acquitted (H-39).
	UpstreamQuarantine(t cache.TypeURL, convicted bool)
	// ResourcesExpired: the TTLs of so many ran out, for want of a renewal (TTL-2).
	ResourcesExpired(t cache.TypeURL, n int)
}

// Stream is a stream to a control plane.
type Stream struct {
	Role session.Role
	// Entry names the control plane, out of the configured list.
	Entry string
	SotW  bool
}

// Mode is the stream's variant as the configuration calls it.
func (s Stream) Mode() string {
	if s.SotW {
		return "sotw"
	}
	return "delta"
}

type nobody struct{}

func (nobody) UpstreamConnected(Stream, bool)                        {}
func (nobody) UpstreamReconnect(session.Role, string, time.Duration) {}
func (nobody) UpstreamConnection(string, bool)                       {}
func (nobody) UpstreamCheck(string, session.CheckResult)             {}
func (nobody) UpstreamResponse(cache.TypeURL, int, int)              {}
func (nobody) UpstreamNack(cache.TypeURL)                            {}
func (nobody) UpstreamDropped(string)                                {}
func (nobody) UpstreamUnasked(cache.TypeURL, int)                    {}
func (nobody) UpstreamLeftOut(cache.TypeURL, int)                    {}
func (nobody) UpstreamQuarantine(t cache.TypeURL, convicted bool)    {}
func (nobody) ResourcesExpired(cache.TypeURL, int)                   {}
