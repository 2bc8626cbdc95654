package result

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// headline are the figures of the tables, by workload.
var headline = map[string][]string{
	"fanout":     {"cpu_per_delivery", "cpu_per_response", "propagation_p50", "propagation_p99", "last_client_p50", "rss_per_client"},
	"named":      {"cpu_per_delivery", "cpu_per_response", "propagation_p50", "propagation_p99", "last_client_p50"},
	"herd":       {"cpu_per_cold_client", "all_synced", "sync_p50", "rss_after_per_client", "rss_per_client"},
	"herd-named": {"cpu_per_cold_client", "all_synced", "sync_p50", "rss_after_per_client", "rss_per_client"},
	"reconnect":  {"cpu_per_cold_client", "all_synced", "resource_bytes_per_client", "rss_peak_per_client"},
	"memory":     {"rss_per_client", "heap_per_client"},
	"names":      {"heap_per_client_and_name", "rss_per_client_and_name"},
	"sotw":       {"cpu_per_response", "propagation_p50", "last_client_p50"},
	"mixed":      {"cpu_per_delivery", "propagation_p50", "last_client_p50", "last_client_max"},
	"soak":       {"cpu_per_delivery", "propagation_p99", "rss_slope", "heap_slope", "goroutines_slope", "fds_slope"},
}

// Headline are the most important figures of a workload.
func Headline(workload string) []string { return headline[workload] }

// WriteTable writes the figures of all servers side by side, and how the targets were
// met, as Markdown: median (min–max).
func (f *File) WriteTable(w io.Writer) error {
	keys, runs := f.Group()
	type place struct{ workload, variant string }
	var places []place
	servers := make(map[place][]Key)
	for _, k := range keys {
		p := place{k.Workload, k.Variant}
		if servers[p] == nil {
			places = append(places, p)
		}
		servers[p] = append(servers[p], k)
	}
	var b strings.Builder
	for _, p := range places {
		fmt.Fprintf(&b, "\n%s, %s\n\n", p.workload, p.variant)
		head := []string{""}
		for _, k := range servers[p] {
			head = append(head, k.Server)
		}
		rows := [][]string{head}
		for _, name := range headline[p.workload] {
			row, any := []string{name}, false
			for _, k := range servers[p] {
				s, ok := Over(runs[k], name)
				any = any || ok
				if row[0] == name && s.Unit != "" {
					row[0] += ", " + s.Unit
				}
				row = append(row, s.text(ok))
			}
			if any {
				rows = append(rows, row)
			}
		}
		markdown(&b, rows)
	}
	if outcomes := f.Outcomes(); len(outcomes) > 0 {
		fmt.Fprintf(&b, "\nTargets\n\n")
		rows := [][]string{{"", "measured", "target", "stretch", ""}}
		for _, o := range outcomes {
			stretch := ""
			if o.Stretch > 0 {
				stretch = "≤ " + Number(o.Stretch)
			}
			rows = append(rows, []string{o.Name, strings.TrimSpace(o.text(true) + " " + o.Target.Unit), "≤ " + Number(o.Limit), stretch, o.String()})
		}
		markdown(&b, rows)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// text is the spread in a cell.
func (s Spread) text(ok bool) string {
	switch {
	case !ok:
		return "–"
	case s.N == 1:
		return Number(s.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", Number(s.Median), Number(s.Min), Number(s.Max))
}

// markdown writes a table whose first row is its head.
func markdown(w io.Writer, rows [][]string) {
	for i, r := range rows {
		fmt.Fprintf(w, "| %s |\n", strings.Join(r, " | "))
		if i == 0 {
			fmt.Fprintf(w, "|%s\n", strings.Repeat("---|", len(r)))
		}
	}
}

// WriteText writes the figures of each group of runs, one a line.
func (f *File) WriteText(w io.Writer) error {
	keys, runs := f.Group()
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, k := range keys {
		fmt.Fprintf(t, "%s against %s, %s\n", k.Workload, k.Server, k.Variant)
		for _, name := range names(runs[k]) {
			s, _ := Over(runs[k], name)
			fmt.Fprintf(t, "  %s\t%s\t%s\n", name, s.text(true), s.Unit)
		}
	}
	return t.Flush()
}

// WriteCSV writes one figure a line.
func (f *File) WriteCSV(w io.Writer) error {
	var b strings.Builder
	b.WriteString("workload,variant,server,repetition,figure,value,unit\n")
	for _, r := range f.Runs {
		for _, v := range r.Figures {
			fmt.Fprintf(&b, "%s,%q,%s,%d,%s,%g,%s\n", r.Workload, r.Variant, r.Server, r.Repetition, v.Name, v.Value, v.Unit)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Change is one figure in two files.
type Change struct {
	Workload, Variant, Server, Figure, Unit string
	Old, New                                float64
}

// Ratio is new ÷ old.
func (c Change) Ratio() float64 { return c.New / c.Old }

// told are the given figures or, if there are none, the headline of a workload.
func told(workload string, figures []string) []string {
	if len(figures) == 0 {
		return headline[workload]
	}
	return figures
}

// Compare compares the medians of two files, of the given figures or, if there are none, of the
// headlines. If over names a server, each figure is divided by that server's in the same file, so that
// files of different machines, or hours, can be compared.
func Compare(old, now *File, over string, figures []string) (all []Change) {
	keys, runs := old.Group()
	_, newRuns := now.Group()
	for _, k := range keys {
		if newRuns[k] == nil || k.Server == over {
			continue
		}
		base := Key{k.Workload, k.Variant, over}
		for _, name := range told(k.Workload, figures) {
			a, ok1 := Over(runs[k], name)
			b, ok2 := Over(newRuns[k], name)
			c := Change{k.Workload, k.Variant, k.Server, name, a.Unit, a.Median, b.Median}
			if over != "" {
				x, ok3 := Over(runs[base], name)
				y, ok4 := Over(newRuns[base], name)
				if !ok3 || !ok4 || x.Median == 0 || y.Median == 0 {
					continue
				}
				c.Old, c.New, c.Unit = a.Median/x.Median, b.Median/y.Median, "× "+over
			}
			if ok1 && ok2 {
				all = append(all, c)
			}
		}
	}
	return all
}

// Uncompared lists what Compare leaves out because one of the files lacks it: given figures
// that one file has or, if none were given, servers without a common figure. Figures that
// the server over lacks in both files are not listed.
func Uncompared(old, now *File, over string, figures []string) (all []string) {
	type figure struct {
		Key
		name string
	}
	compared := make(map[figure]bool)
	for _, c := range Compare(old, now, over, figures) {
		k := Key{c.Workload, c.Variant, c.Server}
		compared[figure{k, c.Figure}], compared[figure{k, ""}] = true, true
	}
	keys, runs := now.Group()
	_, oldRuns := old.Group()
	for _, k := range keys {
		if k.Server == over {
			continue
		}
		base := Key{k.Workload, k.Variant, over}
		place := fmt.Sprintf("%s, %s, %s", k.Workload, k.Variant, k.Server)
		related := over == "" || len(oldRuns[base])+len(runs[base]) > 0
		if len(figures) == 0 && related && !compared[figure{k, ""}] {
			all = append(all, place)
		}
		either := func(k Key, name string) bool {
			_, was := Over(oldRuns[k], name)
			_, is := Over(runs[k], name)
			return was || is
		}
		for _, name := range figures {
			if either(k, name) && (over == "" || either(base, name)) && !compared[figure{k, name}] {
				all = append(all, place+": "+name)
			}
		}
	}
	return all
}

// WriteChanges writes a comparison.
func WriteChanges(w io.Writer, all []Change) error {
	rows := [][]string{{"workload", "server", "figure", "old", "new", "new ÷ old"}}
	for _, c := range all {
		rows = append(rows, []string{
			c.Workload + ", " + c.Variant, c.Server, c.Figure, Number(c.Old) + " " + c.Unit, Number(c.New) + " " + c.Unit, fmt.Sprintf("%.2f", c.Ratio()),
		})
	}
	var b strings.Builder
	markdown(&b, rows)
	_, err := io.WriteString(w, b.String())
	return err
}
