package files

import (
	"slices"
	"strings"
	"testing"
)

// TestNotes: what a client would reject or miss is said with its place, and nothing else.
func TestNotes(t *testing.T) {
	dir := write(t, map[string]string{
		"clusters.yaml": `resources:
- {"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: sound, connect_timeout: 1s}
- {"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: eds, type: EDS, eds_cluster_config: {eds_config: {ads: {}}, service_name: there}}
- {"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: alone, type: EDS, eds_cluster_config: {eds_config: {ads: {}}}}
- {"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: wrong, connect_timeout: 0s, lb_policy: 77,
   circuit_breakers: {thresholds: [{retry_budget: {budget_percent: {value: 101}}}]}, outlier_detection: {enforcing_success_rate: 101}}
`,
		"endpoints.yaml": `resources: [{"@type": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment, cluster_name: there, endpoints: [{priority: 200}]}]`,
		"listeners.yaml": `resources:
- "@type": type.googleapis.com/envoy.config.listener.v3.Listener
  name: l
  filter_chains:
  - filters:
    - name: hcm
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
        route_config:
          virtual_hosts:
          - name: v
            domains: []
            routes:
            - match: {prefix: /}
              route: {cluster: gone}
            - route: {weighted_clusters: {clusters: [{name: sound, weight: 1}, {name: lost, weight: 1}]}}
`,
	})
	s, err := Load(dir, options())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`clusters.yaml:4:3: "alone" is a cluster of type EDS, and there is no ClusterLoadAssignment "alone"`,
		`clusters.yaml:5:3: "wrong": circuit_breakers.thresholds[0].retry_budget.budget_percent.value is 101, and must be at most 100`,
		`clusters.yaml:5:3: "wrong": connect_timeout is 0s, and must be more than 0s`,
		`clusters.yaml:5:3: "wrong": lb_policy is 77, which is no value of LbPolicy`,
		`clusters.yaml:5:3: "wrong": outlier_detection.enforcing_success_rate is 101, and must be at most 100`,
		`endpoints.yaml:1:13: "there": endpoints[0].priority is 200, and must be at most 128`,
		`listeners.yaml:2:3: "l": filter_chains[0].filters[0].typed_config.route_config.virtual_hosts[0].domains has 0 items, and needs 1`,
		`listeners.yaml:2:3: "l": filter_chains[0].filters[0].typed_config.route_config.virtual_hosts[0].routes[0].route.cluster leads to cluster "gone", which is not there`,
		`listeners.yaml:2:3: "l": filter_chains[0].filters[0].typed_config.route_config.virtual_hosts[0].routes[1].match is required`,
		`listeners.yaml:2:3: "l": filter_chains[0].filters[0].typed_config.route_config.virtual_hosts[0].routes[1].route.weighted_clusters.clusters[1].name leads to cluster "lost", which is not there`,
		`listeners.yaml:2:3: "l": filter_chains[0].filters[0].typed_config.stat_prefix has 0 characters, and needs 1`,
	}
	var got []string
	for _, note := range s.Notes() {
		got = append(got, strings.TrimPrefix(note, dir+"/"))
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the notes are\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
