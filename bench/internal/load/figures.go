//go:build linux

package load

import "maps"

// units are figures by their names, with the unit of each.
type units map[string]string

// distribution is what a histogram of a name adds.
func distribution(name string) units {
	u := make(units)
	for _, q := range []string{"p50", "p90", "p99", "p999", "max"} {
		u[name+"_"+q] = "ms"
	}
	return u
}

// The figures of the kinds of workloads. TestWorkloads fails on one that is not here.
var (
	memoryFigures = units{"rss_base": "MiB", "rss_per_client": "KiB", "heap_per_client": "KiB"}
	namesFigures  = units{"rss_per_client_and_name": "B", "heap_per_client_and_name": "B", "names_per_client": ""}
	coldFigures   = units{
		"cpu_per_cold_client": "ms", "rss_base": "MiB", "rss_per_client": "KiB", "rss_peak": "MiB", "rss_peak_per_client": "KiB", "rss_after_per_client": "KiB",
		"all_synced": "s", "resources_per_client": "", "resource_bytes_per_client": "B", "bytes_per_client": "B",
		"bytes_up_per_client": "B", "upstream_streams": "", "upstream_extra_bytes": "B",
	}
	changeFigures = units{
		"rss_base": "MiB", "rss_per_client": "KiB", "rss_under_load": "MiB",
		"cpu_per_delivery": "µs", "cpu_per_response": "µs", "cpu_per_mib": "ms", "cpu_cores": "", "load_cores": "",
		"changes": "", "deliveries": "", "responses": "", "changes_per_response": "",
		"bytes_per_delivery": "B", "bytes_up_per_delivery": "B", "resource_bytes_per_delivery": "B",
		"unsettled_changes": "", "missing_deliveries": "", "repeated_deliveries": "",
		"gc_cycles_per_second": "", "gc_share": "%", "heap": "MiB", "allocated_per_delivery": "B", "allocations_per_delivery": "",
	}
	soakFigures = units{
		"visitors": "", "visitors_failed": "", "rss_slope": "%/h", "heap_slope": "%/h", "goroutines_slope": "%/h", "fds_slope": "%/h",
	}
)

// Figures are the figures that runs of the workload may have, with the unit of each.
func (w *Workload) Figures() map[string]string {
	switch w.Name {
	case "memory":
		return memoryFigures
	case "names":
		return namesFigures
	case "herd", "herd-named", "reconnect":
		return union(coldFigures, distribution("sync"))
	case "soak":
		return union(changeFigures, distribution("propagation"), distribution("last_client"), soakFigures)
	}
	return union(changeFigures, distribution("propagation"), distribution("last_client"))
}

func union(all ...units) units {
	u := make(units)
	for _, one := range all {
		maps.Copy(u, one)
	}
	return u
}
