package realenvoy

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Dump is what an Envoy holds, by name, as /config_dump has it. What its bootstrap has
// brought is not in it.
type Dump struct {
	Clusters, Listeners, Routes, Endpoints, Secrets, Extensions map[string]Resource
}

// Resource is one resource of a Dump.
type Resource struct {
	// Version is the server's; of a full state it is that of the set in SotW.
	Version string
	// Warming: it is not in use yet.
	Warming bool
	// Updated is when the Envoy took it in.
	Updated time.Time
	// Body is the resource as JSON.
	Body json.RawMessage
	// Error is why the last version of it was not taken.
	Error string
}

// Dump reads what the Envoy holds.
func (a *Admin) Dump() (*Dump, error) {
	var all struct {
		Configs []json.RawMessage `json:"configs"`
	}
	if err := a.decode("/config_dump?include_eds", &all); err != nil {
		return nil, err
	}
	d := &Dump{
		Clusters: make(map[string]Resource), Listeners: make(map[string]Resource), Routes: make(map[string]Resource),
		Endpoints: make(map[string]Resource), Secrets: make(map[string]Resource), Extensions: make(map[string]Resource),
	}
	for _, config := range all.Configs {
		if err := d.add(config); err != nil {
			return nil, fmt.Errorf("/config_dump: %w", err)
		}
	}
	return d, nil
}

// section is the union of the sections of a dump that have resources.
type section struct {
	Type            string  `json:"@type"`
	ActiveClusters  []entry `json:"dynamic_active_clusters"`
	WarmingClusters []entry `json:"dynamic_warming_clusters"`
	Listeners       []entry `json:"dynamic_listeners"`
	Routes          []entry `json:"dynamic_route_configs"`
	Endpoints       []entry `json:"dynamic_endpoint_configs"`
	ActiveSecrets   []entry `json:"dynamic_active_secrets"`
	WarmingSecrets  []entry `json:"dynamic_warming_secrets"`
	Extensions      []entry `json:"ecds_filters"`
}

// entry is the union of what a section's resources come in.
type entry struct {
	Name      string          `json:"name"`
	Version   string          `json:"version_info"`
	Updated   time.Time       `json:"last_updated"`
	Cluster   json.RawMessage `json:"cluster"`
	Listener  json.RawMessage `json:"listener"`
	Route     json.RawMessage `json:"route_config"`
	Endpoints json.RawMessage `json:"endpoint_config"`
	Secret    json.RawMessage `json:"secret"`
	Extension json.RawMessage `json:"ecds_filter"`
	Active    *entry          `json:"active_state"`
	Warming   *entry          `json:"warming_state"`
	Error     struct {
		Details string `json:"details"`
	} `json:"error_state"`
}

func (d *Dump) add(config json.RawMessage) error {
	var s section
	if !holdsResources(config) {
		return nil
	}
	if err := json.Unmarshal(config, &s); err != nil {
		return err
	}
	put(d.Clusters, s.ActiveClusters, false, func(e entry) json.RawMessage { return e.Cluster })
	put(d.Clusters, s.WarmingClusters, true, func(e entry) json.RawMessage { return e.Cluster })
	put(d.Routes, s.Routes, false, func(e entry) json.RawMessage { return e.Route })
	put(d.Endpoints, s.Endpoints, false, func(e entry) json.RawMessage { return e.Endpoints })
	put(d.Secrets, s.ActiveSecrets, false, func(e entry) json.RawMessage { return e.Secret })
	put(d.Secrets, s.WarmingSecrets, true, func(e entry) json.RawMessage { return e.Secret })
	put(d.Extensions, s.Extensions, false, func(e entry) json.RawMessage { return e.Extension })
	for _, l := range s.Listeners {
		state, warming := l.Active, false
		if state == nil {
			state, warming = l.Warming, true
		}
		if state == nil {
			state, warming = &entry{}, false // it only drains, or was never accepted
		}
		d.Listeners[l.Name] = Resource{
			Version: state.Version, Warming: warming, Updated: state.Updated, Body: state.Listener, Error: l.Error.Details,
		}
	}
	return nil
}

// holdsResources: the bootstrap's section has fields of the same names and other types.
func holdsResources(config json.RawMessage) bool {
	var kind struct {
		Type string `json:"@type"`
	}
	return json.Unmarshal(config, &kind) == nil && !strings.HasSuffix(kind.Type, ".BootstrapConfigDump")
}

// put adds a section's entries. What is in use goes before what warms to replace it.
func put(to map[string]Resource, entries []entry, warming bool, body func(entry) json.RawMessage) {
	for _, e := range entries {
		name := e.Name
		if name == "" {
			name = nameOf(body(e))
		}
		if _, used := to[name]; warming && used {
			continue
		}
		to[name] = Resource{Version: e.Version, Warming: warming, Updated: e.Updated, Body: body(e), Error: e.Error.Details}
	}
}

func nameOf(body json.RawMessage) string {
	var named struct {
		Name        string `json:"name"`
		ClusterName string `json:"cluster_name"`
	}
	if json.Unmarshal(body, &named) != nil {
		return ""
	}
	return or(named.Name, named.ClusterName)
}
