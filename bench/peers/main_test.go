package main

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/bench/internal/load"
)

// TestPeers puts each server through small workloads: all must deliver everything, or
// the figures compare what is not the same.
func TestPeers(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			for _, workload := range []string{"fanout", "named", "herd", "reconnect", "sotw"} {
				s, err := newServer(kind)
				if err != nil {
					t.Fatal(err)
				}
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				go func() { _ = s.Serve(l) }() // until its listener is closed
				w := load.Find(workload)
				o := w.Defaults
				o.Clients, o.SotW, o.ConnectRate, o.Settle = 10, min(o.SotW, 10), 0, 0
				o.Rate, o.Warmup, o.Duration = 20, 0, 500*time.Millisecond
				o.World.Clusters, o.World.Assignments, o.Names = min(o.World.Clusters, 20), min(o.World.Assignments, 20), min(o.Names, 20)
				r, err := load.Run(context.Background(), w, o, load.Target{Name: kind, Address: l.Addr().String(), Pid: os.Getpid(), Source: s}, nil)
				l.Close()
				if err != nil {
					t.Fatal(err)
				}
				switch workload {
				case "herd", "reconnect":
					want := map[string]float64{"herd": 20, "reconnect": 0}[workload]
					if n, _ := r.Get("resources_per_client"); n != want {
						t.Errorf("%s: %v resources for each client, want %v", workload, n, want)
					}
				default:
					if n, _ := r.Get("deliveries"); n != 100 {
						t.Errorf("%s: %v deliveries, want 10 changes to 10 clients", workload, n)
					}
				}
			}
		})
	}
}
