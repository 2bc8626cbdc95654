// Package world owns what the servers under test serve: clusters and endpoint
// assignments as a function of a seed and a number of steps, so that processes that
// agree on the step agree on every byte. It never talks to anybody. Its resources
// are realistic in size, not in meaning: no proxy could route by them.
package world

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Kind is a type of resource.
type Kind int

// The kinds there are.
const (
	Cluster Kind = iota
	Endpoint
)

// Kinds are all of them.
var Kinds = []Kind{Cluster, Endpoint}

// TypeURL is the kind's type.
func (k Kind) TypeURL() string {
	if k == Cluster {
		return "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	}
	return "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
}

// KindOf is the kind of a type; ok is false if there is none.
func KindOf(typeURL string) (k Kind, ok bool) {
	for _, k := range Kinds {
		if k.TypeURL() == typeURL {
			return k, true
		}
	}
	return 0, false
}

// Spec says how large a world is, and what changes in it.
type Spec struct {
	Seed uint64 `json:"seed"`
	// Clusters is how many clusters there are, of about ClusterBytes each.
	Clusters     int `json:"clusters"`
	ClusterBytes int `json:"cluster_bytes,omitempty"`
	// Assignments is how many endpoint assignments there are, of Endpoints
	// endpoints each.
	Assignments int `json:"assignments"`
	Endpoints   int `json:"endpoints,omitempty"`
	// Changes is the kind that steps change.
	Changes Kind `json:"changes"`
}

// World is a Spec and the order in which its resources change. It does not change,
// and may be used from any goroutine.
type World struct {
	Spec
	order []int
}

// New returns the world of a Spec.
func New(s Spec) *World {
	r := rand.New(rand.NewPCG(s.Seed, 1))
	w := &World{Spec: s}
	w.order = r.Perm(w.Count(s.Changes))
	return w
}

// Count is how many resources of a kind there are.
func (w *World) Count(k Kind) int {
	if k == Cluster {
		return w.Clusters
	}
	return w.Assignments
}

// Name is the name of a resource.
func (w *World) Name(k Kind, i int) string {
	if k == Cluster {
		return fmt.Sprintf("cluster-%05d", i)
	}
	return fmt.Sprintf("endpoints-%05d", i)
}

// Changed is which resource of Spec.Changes step n changes; the first step is 1. All
// have changed once before one changes again.
func (w *World) Changed(n int) int { return w.order[(n-1)%len(w.order)] }

// StepText is how a resource says which step made it: always as long, so that its
// size does not change. It is alt_stat_name in a cluster, and the first locality's
// sub_zone in an assignment.
func StepText(step int) string { return fmt.Sprintf("%010d", step) }

// Step reads StepText.
func Step(text []byte) (int, error) { return strconv.Atoi(string(text)) }

// Message is a resource as step has made it.
func (w *World) Message(k Kind, i, step int) proto.Message {
	if k == Cluster {
		return w.cluster(i, step)
	}
	return w.assignment(i, step)
}

// Body is Message on the wire.
func (w *World) Body(k Kind, i, step int) []byte {
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(w.Message(k, i, step))
	if err != nil {
		panic(err) // made in this file, of strings that are UTF-8
	}
	return body
}

// Stamp is a Body of step 0 as another step has made it.
func Stamp(body []byte, step int) []byte {
	return bytes.Replace(body, []byte(StepText(0)), []byte(StepText(step)), 1)
}

// cluster is static: one that uses endpoints would have servers send those, too.
func (w *World) cluster(i, step int) *cluster.Cluster {
	name := w.Name(Cluster, i)
	c := &cluster.Cluster{
		Name: name, AltStatName: StepText(step),
		ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_STATIC},
		ConnectTimeout:       durationpb.New(5 * time.Second),
		LoadAssignment:       &endpoint.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpoint.LocalityLbEndpoints{{LbEndpoints: hosts(i, 4)}}},
	}
	if missing := w.ClusterBytes - proto.Size(c) - 8; missing > 0 {
		c.LoadAssignment.Endpoints[0].Locality = &core.Locality{Region: strings.Repeat("r", missing)}
	}
	return c
}

func (w *World) assignment(i, step int) *endpoint.ClusterLoadAssignment {
	return &endpoint.ClusterLoadAssignment{
		ClusterName: w.Name(Endpoint, i),
		Endpoints: []*endpoint.LocalityLbEndpoints{{
			Locality:    &core.Locality{Region: "region-1", Zone: "zone-1", SubZone: StepText(step)},
			LbEndpoints: hosts(i, w.Endpoints),
		}},
	}
}

func hosts(seed, n int) []*endpoint.LbEndpoint {
	all := make([]*endpoint.LbEndpoint, n)
	for j := range all {
		all[j] = &endpoint.LbEndpoint{
			HealthStatus: core.HealthStatus_HEALTHY,
			HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{
				Address: &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
					Address:       fmt.Sprintf("10.%d.%d.%d", seed>>8&255, seed&255, j&255),
					PortSpecifier: &core.SocketAddress_PortValue{PortValue: 8080},
				}}},
			}},
		}
	}
	return all
}
