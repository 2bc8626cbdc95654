//go:build linux

package attack

import (
	"strings"
	"testing"
	"time"
)

// attacks are all of them, in the order of the table.
var attacks = []attack{
	{ID: "S2", Name: "4 requests of 61 KB that inflate to 60 MiB", Short: true, Harm: inflated, MiB: 64},
	{ID: "S2", Name: "20 messages of 60 MiB but for the last byte", Harm: halfSent(20, 60<<20, 20), MiB: 64},
	{ID: "S2", Name: "80 messages of 15 MiB but for the last byte, on 4 connections", Short: true, Harm: halfSent(80, 15<<20, 20), MiB: 64},
	{ID: "S3", Name: "8 made-up relay ids below two relays", Short: true, Behind: true, Remote: true, Harm: ways("a,b,c,d,e,f,g,h")},
	{ID: "S3", Name: "relay ids of 12,000 bytes", Remote: true, Plane: planeOptions{MaxHeaders: 8 << 10}, Harm: ways(strings.Repeat("a", 12_000))},
	{ID: "S4", Name: "a new type each 0.5 s, each of which ends the control plane's stream", Short: true, Plane: planeOptions{Strict: true}, Harm: inventedTypes(500 * time.Millisecond)},
	{ID: "S5", Name: "200,000 names below a SotW control plane", Plane: planeOptions{SotW: true}, Harm: manyNames(1, 200_000, 50)},
	{ID: "S8", Name: "883 types with names of 4 KB on one stream", Harm: manyTypes(1, 883, 4000)},
	{ID: "S8", Name: "20 streams of 1,000 types", Harm: manyTypes(20, 1000, 40)},
	{ID: "S8", Name: "20 streams of 250 types", Short: true, Harm: manyTypes(20, 250, 40)},
	{ID: "S8", Name: "3 streams of 990,000 names", Remote: true, Harm: manyNames(3, 990_000, 40)},
	{ID: "S9", Name: "rapid reset", Short: true, Remote: true, Harm: flood(1, nil, rapidReset)},
	{ID: "H2", Name: "PING", Harm: flood(1, nil, pings)},
	{ID: "H2", Name: "SETTINGS", Harm: flood(1, nil, settings)},
	{ID: "H2", Name: "WINDOW_UPDATE", Harm: flood(1, opened, windowUpdates)},
	{ID: "H2", Name: "PRIORITY", Harm: flood(1, opened, priorities)},
	{ID: "H2", Name: "empty DATA", Harm: flood(1, opened, emptyData)},
	{ID: "H2", Name: "CONTINUATION without end", Harm: flood(1, nil, continuations)},
	{ID: "H2", Name: "HPACK bombs", Harm: flood(1, nil, headerBombs)},
	{ID: "H2", Name: "GOAWAY over and over", Harm: flood(1, nil, goAways)},
	{ID: "H2", Name: "unknown methods", Harm: flood(1, nil, unknownMethods)},
}

// TestAttacks plays them (R32).
func TestAttacks(t *testing.T) {
	for i := range attacks {
		a := &attacks[i]
		if !long() && !a.Short {
			continue
		}
		t.Run(a.ID+" "+a.Name, func(t *testing.T) {
			span := 15 * time.Second
			if !long() {
				t.Parallel() // mostly they wait
				span = 2 * time.Second
			}
			w := newWorld(t, a)
			w.judge(w.play(span))
		})
	}
}
