package relay

import (
	"fmt"

	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/descriptors"
)

// Room is how many connections clients may have.
type Room struct {
	// Most is their number; 0: there is no bound.
	Most int
	// Hint says what to do if that is too few.
	Hint string
	// Warning says what is wrong with the settings, if anything is.
	Warning string
}

// RoomFor is the room under a limit of file descriptors; 0: the limit is not known.
func RoomFor(c *config.Config, limit int) Room {
	up := c.Upstream.MaxConnections
	up += min(c.PassthroughConnections(c.EffectivePassthrough()), up)
	set, left := c.Downstream.MaxConnections, descriptors.ForClients(limit, up)
	if limit == 0 || set > 0 && set <= left {
		return Room{Most: set, Hint: "raise downstream.max_connections, or run more replicas"}
	}
	r := Room{Most: left, Hint: fmt.Sprintf("raise LimitNOFILE (ulimit -n, which is %d), or run more replicas", limit)}
	switch {
	case set > left:
		r.Warning = "downstream.max_connections is more than the limit of file descriptors leaves: raise LimitNOFILE (ulimit -n)"
	case limit < descriptors.Kept(limit)+up+left:
		r.Warning = "there are fewer file descriptors than upstream.max_connections and some clients may need: raise LimitNOFILE (ulimit -n), or lower upstream.max_connections"
	}
	return r
}

// warnOfRoom says what is wrong with the settings.
func (r *Relay) warnOfRoom(c *config.Config) {
	limit := descriptors.Limit()
	if room := RoomFor(c, limit); room.Warning != "" {
		r.log.Warn(room.Warning, "limit", limit, "max_connections", room.Most)
	}
}
