package result

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Ratio is a figure of a server over that of another server: of each repetition the one
// over the other, which ran at about the same time.
type Ratio struct {
	Key
	Figure string
	Spread
}

// Ratios divides the figures of all other servers by those of one, and reports figures
// that only one of the two has, or that have no repetition with both. The figures are as
// Compare has them.
func (f *File) Ratios(over string, figures []string) (all []Ratio, missing []string) {
	keys, _ := f.Group()
	for _, k := range keys {
		if k.Server == over {
			continue
		}
		for _, name := range told(k.Workload, figures) {
			of, base := At{k.Workload, k.Variant, k.Server, name}, At{k.Workload, k.Variant, over, name}
			if s, ok := f.Measure(Target{Of: of, Over: &base}); ok {
				all = append(all, Ratio{k, name, s})
			} else if len(f.find(of))+len(f.find(base)) > 0 {
				missing = append(missing, fmt.Sprintf("%s, %s, %s: %s", k.Workload, k.Variant, k.Server, name))
			}
		}
	}
	return all, missing
}

// Worse are the ratios whose median is above a limit, and above all ratios between two runs
// of the same server, in either direction, where it ran more than once.
func Worse(all []Ratio, over string, limit float64) (worse []string) {
	for _, r := range all {
		text := fmt.Sprintf("%s, %s, %s: %s is %s × %s", r.Workload, r.Variant, r.Server, r.Figure, r.cell(), over)
		allowed := limit
		for _, same := range all {
			itself := strings.HasPrefix(same.Server, over+Again)
			if itself && same.Workload == r.Workload && same.Variant == r.Variant && same.Figure == r.Figure {
				allowed = max(allowed, same.Max, 1/same.Min)
				text += fmt.Sprintf(", %s %s", same.Server, same.cell())
			}
		}
		if r.Median > allowed {
			worse = append(worse, text)
		}
	}
	return worse
}

// cell is a ratio in a table; a hundredth may decide.
func (r Ratio) cell() string {
	if r.N == 1 {
		return fmt.Sprintf("%.3f", r.Median)
	}
	return fmt.Sprintf("%.3f (%.3f–%.3f)", r.Median, r.Min, r.Max)
}

// WriteRatios writes ratios, servers side by side, as Markdown: median (min–max).
func WriteRatios(w io.Writer, all []Ratio, over string) error {
	head := []string{"workload", "÷ " + over}
	var rows [][]string
	for _, r := range all {
		column := slices.Index(head, r.Server)
		if column < 0 {
			column = len(head)
			head = append(head, r.Server)
		}
		place := r.Workload + ", " + r.Variant
		row := slices.IndexFunc(rows, func(cells []string) bool { return cells[0] == place && cells[1] == r.Figure })
		if row < 0 {
			row = len(rows)
			rows = append(rows, []string{place, r.Figure})
		}
		rows[row] = append(pad(rows[row], column), r.cell())
	}
	for i := range rows {
		rows[i] = pad(rows[i], len(head))
	}
	var b strings.Builder
	markdown(&b, append([][]string{head}, rows...))
	_, err := io.WriteString(w, b.String())
	return err
}

// pad fills cells that nothing is said in.
func pad(cells []string, n int) []string {
	for len(cells) < n {
		cells = append(cells, "–")
	}
	return cells
}
