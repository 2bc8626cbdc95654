package relay

import (
	"strings"
	"testing"

	"github.com/xds-relay/xds-relay/internal/config"
)

// TestRoomFor: clients never get the descriptors that the relay needs itself, whatever is set.
func TestRoomFor(t *testing.T) {
	for _, tt := range []struct {
		limit, upstream, set int
		most                 int
		hint, warning        string
	}{
		{limit: 256, upstream: 64, most: 160, hint: "raise LimitNOFILE (ulimit -n, which is 256)"},
		{limit: 20000, upstream: 64, most: 19296, hint: "LimitNOFILE"},
		{limit: 256, upstream: 2, most: 222, hint: "LimitNOFILE"},
		{limit: 256, upstream: 64, set: 100, most: 100, hint: "raise downstream.max_connections"},
		{limit: 256, upstream: 64, set: 160, most: 160, hint: "raise downstream.max_connections"},
		{limit: 256, upstream: 64, set: 161, most: 160, hint: "LimitNOFILE", warning: "downstream.max_connections is more than"},
		{limit: 128, upstream: 64, most: 32, hint: "LimitNOFILE"},
		{limit: 100, upstream: 64, most: 25, hint: "LimitNOFILE", warning: "lower upstream.max_connections"},
		{limit: 100, upstream: 64, set: 10, most: 10, hint: "raise downstream.max_connections"},
		{upstream: 64, most: 0, hint: "downstream.max_connections"},
		{upstream: 64, set: 7, most: 7, hint: "downstream.max_connections"},
	} {
		c := config.Default()
		c.Upstream.MaxConnections, c.Downstream.MaxConnections = tt.upstream, tt.set
		got := RoomFor(&c, tt.limit)
		if got.Most != tt.most || !strings.Contains(got.Hint, tt.hint) || !strings.Contains(got.Warning, tt.warning) || (got.Warning == "") != (tt.warning == "") {
			t.Errorf("limit %d, upstream %d, set to %d: %+v", tt.limit, tt.upstream, tt.set, got)
		}
	}
}
