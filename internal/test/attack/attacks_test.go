//go:build linux

package attack

import (
	"bytes"
	"cmp"
	"strings"
	"testing"
	"time"
)

// felt is how late p99 may be where an attack takes all of two processors (docs/security.md).
const felt = 100 * time.Millisecond

// attacks are all of them, in the order of the table.
var attacks = []attack{
	{ID: "S2", Name: "4 requests of 61 KB that inflate to 60 MiB", Short: true, Harm: inflated, MiB: 64},
	{ID: "S2", Name: "20 messages of 60 MiB without the last byte", Harm: halfSent(20, 60<<20, 20), MiB: 64},
	{ID: "S2", Name: "80 messages of 15 MiB without the last byte, on 4 connections", Short: true, Harm: halfSent(80, 15<<20, 20), MiB: 64},
	{ID: "S3", Name: "8 made-up relay ids below two relays", Short: true, Behind: true, Remote: true, Harm: ways("a,b,c,d,e,f,g,h")},
	{ID: "S3", Name: "relay ids of 12,000 bytes", Remote: true, Plane: planeOptions{MaxHeaders: 8 << 10}, Harm: ways(strings.Repeat("a", 12_000))},
	{ID: "S4", Name: "a new type each 0.5 s, each of which ends the control plane's stream", Short: true, Plane: planeOptions{Strict: true}, Harm: inventedTypes(500 * time.Millisecond)},
	{ID: "S5", Name: "200,000 names below a SotW control plane", Plane: planeOptions{SotW: true}, Harm: manyNames(1, 200_000, 10_000), Late: 200 * time.Millisecond, MiB: 320},
	{ID: "S8", Name: "883 types with names of 4 KB on one stream", Harm: manyTypes(1, 883, 4000)},
	{ID: "S8", Name: "20 streams of 1,000 types", Harm: manyTypes(20, 1000, 40)},
	{ID: "S8", Name: "20 streams of 250 types", Short: true, Harm: manyTypes(20, 250, 40)},
	{ID: "S8", Name: "3 streams of 990,000 names", Remote: true, Harm: manyNames(3, 990_000, 10_000), MiB: 384},
	{ID: "S8", Name: "3 requests of 100,000 names", Remote: true, Harm: manyNames(3, 100_000, 100_000), Late: felt, MiB: 384},
	{ID: "S8", Name: "100 streams of 10,000 names", Remote: true, Harm: manyNames(100, 10_000, 10_000), Late: felt, MiB: 640},
	{ID: "S9", Name: "rapid reset", Short: true, Remote: true, Harm: flood(1, nil, rapidReset)},
	{ID: "H2", Name: "PING", Harm: flood(1, nil, pings)},
	{ID: "H2", Name: "SETTINGS", Harm: flood(1, nil, settings)},
	{ID: "H2", Name: "WINDOW_UPDATE", Harm: flood(1, opened, windowUpdates)},
	{ID: "H2", Name: "PRIORITY", Harm: flood(1, opened, priorities)},
	{ID: "H2", Name: "empty DATA", Harm: flood(1, opened, emptyData)},
	{ID: "H2", Name: "CONTINUATION without end", Harm: flood(1, nil, continuations)},
	{ID: "H2", Name: "HPACK bombs", Harm: flood(1, nil, headerBombs)},
	{ID: "H2", Name: "GOAWAY over and over", Harm: flood(1, nil, goAways)},
	{ID: "H2", Name: "unknown methods", Harm: flood(1, nil, unknownMethods), Late: felt},
	{ID: "S7", Name: "1,000 invented nodes of one identity", TLS: true, Remote: true, Sets: []string{"groups.key=[id]"}, Harm: inventedNodes(1000), Meanwhile: hears("newcomer", 990), Late: felt},
	{ID: "S7", Name: "1,000 invented nodes from one address", Remote: true, Sets: []string{"groups.key=[id]"}, Harm: inventedNodes(1000), Meanwhile: hears("newcomer", 990), Late: felt},
	{ID: "S7", Name: "60 invented nodes of one identity, and room for 30", Short: true, TLS: true, Remote: true, Sets: []string{"groups.key=[id]", "groups.max=30"}, Harm: inventedNodes(60), Meanwhile: hears("newcomer", 30)},
	{ID: "T12", Name: "invalid protobuf", Remote: true, Harm: flood(4, nil, invalid([]byte{0xff})), Late: felt},
	{ID: "T12", Name: "invalid UTF-8", Remote: true, Harm: flood(4, nil, invalid([]byte{0x12, 1, 0xff})), Late: felt},
	{ID: "T12", Name: "9,000 values within each other", Remote: true, Harm: flood(4, nil, invalid(nested(9000))), Late: felt},
	{ID: "T12", Name: "unknown groups without end", Remote: true, Harm: flood(4, nil, invalid(bytes.Repeat([]byte{0x0b}, 16<<10))), Late: felt},
	{ID: "T11", Name: "1,000 names subscribed to and given up by each request", Remote: true, Harm: churn(1000)},
	{ID: "T10", Name: "10,000 connections that say nothing", Remote: true, Harm: connects(10_000), Late: felt},
	{ID: "T10", Name: "400 connections that say nothing, and room for 160", Sets: []string{"downstream.max_connections=160"}, Harm: connects(400), Meanwhile: probed},
	{ID: "T10", Name: "400 messages of 4 MiB, a byte each 10 ms", Remote: true, Harm: dripping(400, 4<<20), Meanwhile: hears("newcomer", 1), MiB: 64},
	{ID: "T10", Name: "2,000 clients with 2 MiB without the last byte", Remote: true, MiB: 192, Harm: halfSent(2000, 2<<20, 1), Meanwhile: hears("newcomer", 1)},
	{ID: "T10", Name: "50 clients with 2 MiB without the last byte", Short: true, Remote: true, Harm: halfSent(50, 2<<20, 1), MiB: 64},
	{ID: "T10", Name: "2,000 clients with requests of 2 MiB", Remote: true, MiB: 1280, Harm: whole(2000, 2<<20), Late: felt},
	{ID: "T10", Name: "500 streams with a window of 0", Short: true, Remote: true, Harm: deaf(5, 100, 0)},
	{ID: "T10", Name: "500 streams whose windows are never opened again", Remote: true, Harm: deaf(5, 100, 1000)},
	{ID: "T10", Name: "500 clients that vanish without FIN", Remote: true, Span: time.Minute, Harm: vanish(500), Meanwhile: noneLeft},
	{ID: "T6", Name: "certificates of both sides that expire mid-stream", TLS: true, Lives: 10 * time.Second, Harm: wants, Meanwhile: outlive},
	{ID: "T8", Name: "500 requests to the admin endpoint that never end", Short: true, Harm: slowloris, Meanwhile: probed},
	{ID: "T9", Name: "a planted secret", Short: true, TLS: true, Plane: planeOptions{Serve: secrets}, Sets: []string{"log.level=debug", "cache.snapshot.dir={dir}/state", "cache.snapshot.interval=100ms"}, Harm: asksForSecrets, After: showsNoSecret},
	{ID: "T9", Name: "lines of the log in all that a client says", Short: true, Sets: []string{"log.level=debug", "groups.key=[id]", "groups.forward_headers=[x-token]"}, Harm: injects, After: oneObjectEach},
	{ID: "T13", Name: "a control plane: names twice in a response", Short: true, Plane: planeOptions{Harm: overAndOver(1, 10*time.Millisecond, duplicates)}, Harm: wants},
	{ID: "T13", Name: "a control plane: wrong types", Plane: planeOptions{Harm: overAndOver(1, 10*time.Millisecond, wrongTypes)}, Harm: wants},
	{ID: "T13", Name: "a control plane: aliases in circles", Plane: planeOptions{Harm: overAndOver(1, 10*time.Millisecond, aliasLoops)}, Harm: wants},
	{ID: "T13", Name: "a control plane: odd nonces", Plane: planeOptions{Harm: oddNonces}, Harm: wants},
	{ID: "T13", Name: "a control plane: odd TTLs", Plane: planeOptions{Harm: overAndOver(1, 10*time.Millisecond, oddTTLs)}, Harm: wants},
	{ID: "T13", Name: "a control plane: 10,000 responses a second", SlowPlane: true, Plane: planeOptions{Harm: overAndOver(100, 10*time.Millisecond, changes)}, Harm: wants},
	{ID: "T13", Name: "a control plane: responses of 50 MB", SlowPlane: true, Plane: planeOptions{Harm: overAndOver(1, 2*time.Second, large)}, Harm: wants, MiB: 384},
	{ID: "T13", Name: "a control plane: 500,000 unknown removals", SlowPlane: true, Plane: planeOptions{Harm: overAndOver(1, time.Second, unknownRemovals)}, Harm: wants},
	{ID: "T13", Name: "a control plane: a wildcard's set without end", SlowPlane: true, Sets: []string{"upstream.max_set_bytes=32MiB"}, Plane: planeOptions{Harm: overAndOver(1, 10*time.Millisecond, endless)}, Harm: wants},
	{ID: "T13", Name: "a control plane: GOAWAY 5 times a second", SlowPlane: true, Short: true, Plane: planeOptions{MaxAge: 200 * time.Millisecond}},
}

// TestAttacks plays them (R32).
func TestAttacks(t *testing.T) {
	for i := range attacks {
		a := &attacks[i]
		if !long() && !a.Short {
			continue
		}
		t.Run(a.ID+" "+a.Name, func(t *testing.T) {
			span := cmp.Or(a.Span, 15*time.Second)
			if !long() {
				t.Parallel()
				span = 2 * time.Second
			}
			w := newWorld(t, a)
			w.judge(w.play(span))
		})
	}
}
