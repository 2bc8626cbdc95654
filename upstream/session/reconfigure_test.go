package session

import (
	"slices"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// listed is the configuration of twoEntries with other entries.
func listed(c *Core, names ...string) Config {
	to := c.config
	to.Entries = nil
	for _, name := range names {
		to.Entries = append(to.Entries, Entry{Name: name})
	}
	return to
}

// TestReconfigureList: the streams of the entry in use go on while it is in the list,
// wherever it is, and are opened again if it is gone, or reached in another way.
func TestReconfigureList(t *testing.T) {
	for name, tt := range map[string]struct {
		entries []string
		renewed []bool
		change  func(*Config)
		inUse   string
		opened  []string // the entries of the streams that are opened
		shut    int
	}{
		"the same":                    {[]string{"first", "second"}, []bool{false, false}, nil, "first", nil, 0},
		"the other is gone":           {[]string{"first"}, []bool{false}, nil, "first", nil, 0},
		"another one at the end":      {[]string{"first", "second", "third"}, []bool{false, false, true}, nil, "first", nil, 0},
		"a preferred one, probed":     {[]string{"zeroth", "first"}, []bool{true, false}, nil, "first", []string{"zeroth"}, 0},
		"gone":                        {[]string{"second"}, []bool{false}, nil, "second", []string{"second"}, 1},
		"gone, for a new one":         {[]string{"third"}, []bool{true}, nil, "third", []string{"third"}, 1},
		"another way to it":           {[]string{"first"}, []bool{true}, nil, "first", []string{"first"}, 1},
		"moved back, and another way": {[]string{"second", "first"}, []bool{false, true}, nil, "first", []string{"first", "second"}, 1},
		"another variant":             {[]string{"first"}, []bool{false}, func(c *Config) { c.Entries[0].Mode = ModeSotW }, "first", []string{"first"}, 1},
		"asked in another way":        {[]string{"first", "second"}, []bool{false, false}, func(c *Config) { c.WildcardForm = WildcardExplicit }, "first", []string{"first"}, 1},
		"timers only":                 {[]string{"first", "second"}, []bool{false, false}, func(c *Config) { c.Missing = time.Hour }, "first", nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1000, 0)
			c, hub, open := twoEntries(t, now)
			c.Opened(open.ID, now)
			c.Receive(open.ID, &Response{TypeURL: cache.Cluster}, now)
			tickAll(c, hub, now)
			now = now.Add(2 * time.Second)
			to := listed(c, tt.entries...)
			if tt.change != nil {
				tt.change(&to)
			}
			to.Node = nil
			c.Reconfigure(to, tt.renewed, now)
			first, shut := c.Tick(now)
			var opened []string
			for range 20 {
				now = now.Add(100 * time.Millisecond)
				for _, o := range append(first, tickAll(c, hub, now)...) {
					opened = append(opened, c.entries[o.Entry].Name)
				}
			}
			if c.entry().Name != tt.inUse || len(shut) != tt.shut {
				t.Errorf("%s is in use and %d streams were shut, want %s and %d", c.entry().Name, len(shut), tt.inUse, tt.shut)
			}
			if tt.shut == 0 && !c.Uses(open.ID) {
				t.Error("its stream is not in use any more")
			}
			if slices.Sort(opened); !slices.Equal(slices.Compact(opened), tt.opened) {
				t.Errorf("streams are opened to %v, want %v", opened, tt.opened)
			}
		})
	}
}

// TestReconfigureKeepsTheRest: node, headers, instance and fingerprint are the group's.
func TestReconfigureKeepsTheRest(t *testing.T) {
	now := time.Unix(1000, 0)
	c, _, _ := twoEntries(t, now)
	c.config.Hop, c.config.Fingerprint = "me", cache.Fingerprint{SecretKey: []byte("key")}
	c.Reconfigure(listed(NewCore(Config{Entries: []Entry{{}}}, fanout.NewHub(fanout.Config{}), nil), "first"), []bool{false}, now)
	if c.config.Hop != "me" || string(c.config.Fingerprint.SecretKey) != "key" {
		t.Errorf("the group's own is gone: %+v", c.config)
	}
}
