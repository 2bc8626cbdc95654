package loadreport

import "sync/atomic"

// Reason says why a part of a report was dropped. It is a closed set, fit for a metric label.
type Reason string

// The reasons.
const (
	// Full: there is no room for another name.
	Full Reason = "full"
	// Unasked: the control plane has not asked for the cluster, or not for endpoints.
	Unasked Reason = "unasked"
	// Forbidden: the client may not read the cluster.
	Forbidden Reason = "forbidden"
	// NotFinite: a metric is no number, or infinite, and would make the sum so.
	NotFinite Reason = "not_finite"
	// Abandoned: the control plane was away until after the group's last client had left.
	Abandoned Reason = "abandoned"
)

// Reasons lists them.
func Reasons() []Reason { return []Reason{Full, Unasked, Forbidden, NotFinite, Abandoned} }

// Room bounds, in bytes of memory, what the Sums of all groups keep. It may be used from any goroutine.
type Room struct {
	most int
	used atomic.Int64
}

// NewRoom returns one with so many bytes.
func NewRoom(most int) *Room { return &Room{most: most} }

func (r *Room) take(bytes int) bool {
	if r.used.Add(int64(bytes)) > int64(r.most) {
		r.give(bytes)
		return false
	}
	return true
}

func (r *Room) give(bytes int) { r.used.Add(int64(-bytes)) }

// clientShare is the part of a Room that one client may take: 1 in so many.
const clientShare = 4

// What is kept for a name takes about so many bytes, beside those of the name itself.
const (
	clusterBytes  = 320
	localityBytes = 320
	endpointBytes = 480
	nameBytes     = 96 // of a metric or a category
	heldBytes     = 32
)
