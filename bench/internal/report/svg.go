package report

import (
	"fmt"
	"html"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/xds-relay/xds-relay/bench/internal/result"
)

// series is one line of a plot.
type series struct {
	name   string
	points []point
}

type point struct{ x, y float64 }

// scale maps values to a length, and knows where its ticks are.
type scale struct {
	lo, hi float64
	log    bool
	ticks  []tick
}

type tick struct {
	at    float64
	label string
}

func (s scale) map1(v float64) float64 {
	lo, hi := s.lo, s.hi
	if s.log {
		v, lo, hi = math.Log10(max(v, lo)), math.Log10(lo), math.Log10(hi)
	}
	if hi == lo {
		return 0
	}
	return (v - lo) / (hi - lo)
}

// linear is a scale from 0 with about five ticks.
func linear(hi float64, unit string) scale {
	if hi <= 0 {
		hi = 1
	}
	step := math.Pow(10, math.Floor(math.Log10(hi/4)))
	for hi/step > 6 {
		switch {
		case hi/(2*step) <= 6:
			step *= 2
		case hi/(5*step) <= 6:
			step *= 5
		default:
			step *= 10
		}
	}
	s := scale{hi: math.Ceil(hi/step) * step}
	for v := 0.0; v <= s.hi*1.0001; v += step {
		s.ticks = append(s.ticks, tick{v, strings.TrimSpace(result.Number(math.Round(v/step)*step) + " " + unit)})
	}
	return s
}

// logarithmic is a scale over powers of ten.
func logarithmic(lo, hi float64, unit string) scale {
	lo, hi = math.Max(lo, 1e-3), math.Max(hi, 1e-2)
	from, to := math.Floor(math.Log10(lo)), math.Ceil(math.Log10(hi))
	if from == to {
		to++
	}
	s := scale{lo: math.Pow(10, from), hi: math.Pow(10, to), log: true}
	for e := from; e <= to; e++ {
		v := math.Pow(10, e)
		s.ticks = append(s.ticks, tick{v, strings.TrimSpace(fmt.Sprintf("%g", v) + " " + unit)})
	}
	return s
}

// percentiles is the axis of percentile plots: each step is a tenth of the clients that
// are left.
var percentiles = scale{hi: 4, ticks: []tick{{-math.Log10(0.5), "50 %"}, {1, "90 %"}, {2, "99 %"}, {3, "99.9 %"}, {4, "99.99 %"}}}

// colors of the servers, the same in all plots.
var colors = map[string]string{
	"relay": "#1d5fd1", "chain": "#0b8a8f", "floor": "#8a8f98", "floor-fixed": "#4a4f57",
	"linear": "#d97b16", "mux": "#9a6a1e", "snapshot": "#c2313b",
}

var otherColors = []string{"#7a3fb5", "#2f8f3f", "#b5387f", "#5b6b1f"}

func color(server string, i int) string {
	if c, ok := colors[server]; ok {
		return c
	}
	return otherColors[i%len(otherColors)]
}

// The size of plots, and of their margins. Beside a plot there is room for the longest label: a server
// that was given as a binary is called after its path. The drawing gets wider then, not the plot narrower.
const (
	plotWidth, height = 424, 300
	left, top, bottom = 86, 12, 42
	leastRoom         = 110
)

// room is how wide the longest of some labels is, with a gap. Bold text of 12 px has about 7 px a
// letter; no font is asked.
func room(labels []string) int {
	most := 0
	for _, label := range labels {
		most = max(most, utf8.RuneCountInString(label))
	}
	return max(leastRoom, 16+most*15/2)
}

// plot draws lines, with their names at their ends.
func plot(all []series, x, y scale, xTitle, yTitle string) string {
	var b strings.Builder
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = s.name
	}
	const end = left + plotWidth
	w, h := float64(plotWidth), float64(height-top-bottom)
	px := func(v float64) float64 { return left + w*math.Min(math.Max(x.map1(v), 0), 1) }
	py := func(v float64) float64 { return top + h*(1-math.Min(math.Max(y.map1(v), 0), 1)) }
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, end+room(names), height, html.EscapeString(yTitle+" over "+xTitle))
	for _, t := range y.ticks {
		fmt.Fprintf(&b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text class="tick" x="%d" y="%.1f" text-anchor="end">%s</text>`,
			left, end, py(t.at), py(t.at), left-6, py(t.at)+4, html.EscapeString(t.label))
	}
	for _, t := range x.ticks {
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/><text class="tick" x="%.1f" y="%d" text-anchor="middle">%s</text>`,
			px(t.at), px(t.at), top, height-bottom, px(t.at), height-bottom+16, html.EscapeString(t.label))
	}
	fmt.Fprintf(&b, `<text class="axis" x="%.1f" y="%d" text-anchor="middle">%s</text>`, left+w/2, height-6, html.EscapeString(xTitle))
	fmt.Fprintf(&b, `<text class="axis" transform="translate(12 %.1f) rotate(-90)" text-anchor="middle">%s</text>`, top+h/2, html.EscapeString(yTitle))
	ends := make([]float64, 0, len(all))
	for i, s := range all {
		if len(s.points) == 0 {
			continue
		}
		c := color(s.name, i)
		fmt.Fprintf(&b, `<polyline fill="none" stroke="%s" stroke-width="2" points="`, c)
		for _, p := range s.points {
			fmt.Fprintf(&b, "%.1f,%.1f ", px(p.x), py(p.y))
		}
		last := s.points[len(s.points)-1]
		at := free(ends, py(last.y)+4)
		ends = append(ends, at)
		fmt.Fprintf(&b, `"><title>%s</title></polyline><text class="end" x="%.1f" y="%.1f" fill="%s">%s</text>`,
			html.EscapeString(s.name), px(last.x)+6, at, c, html.EscapeString(s.name))
	}
	b.WriteString("</svg>")
	return b.String()
}

// lineHeight is how far apart labels are kept.
const lineHeight = 13

// free is the place nearest to y that no label has.
func free(taken []float64, y float64) float64 {
	for d := 0.0; ; d += lineHeight / 2 {
		for _, at := range []float64{y - d, y + d} {
			ok := at > top && at < height-bottom+6
			for _, t := range taken {
				ok = ok && math.Abs(t-at) >= lineHeight
			}
			if ok || d > height {
				return at
			}
		}
	}
}

// bar is one value with its spread.
type bar struct {
	name string
	result.Spread
}

const (
	barHeight = 26
	barWidth  = 410
)

// bars draws bars side by side, with a line from the least to the greatest repetition.
func bars(all []bar) string {
	hi := 0.0
	names, values := make([]string, len(all)), make([]string, len(all))
	for i, r := range all {
		hi = math.Max(hi, r.Max)
		names[i], values[i] = r.name, strings.TrimSpace(result.Number(r.Median)+" "+r.Unit)
	}
	if hi == 0 {
		hi = 1
	}
	barLabel := room(names)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="bars">`, barLabel+barWidth+room(values), len(all)*barHeight+4)
	for i, r := range all {
		y, x := i*barHeight+4, func(v float64) float64 { return float64(barLabel) + barWidth*math.Max(v, 0)/hi }
		fmt.Fprintf(&b, `<text class="tick" x="%d" y="%d" text-anchor="end">%s</text>`, barLabel-8, y+14, html.EscapeString(r.name))
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="18" fill="%s"><title>%s: median %s %s, from %s to %s in %d repetitions</title></rect>`,
			barLabel, y, math.Max(x(r.Median)-float64(barLabel), 1), color(r.name, i), html.EscapeString(r.name), result.Number(r.Median), html.EscapeString(r.Unit), result.Number(r.Min), result.Number(r.Max), r.N)
		if r.N > 1 {
			fmt.Fprintf(&b, `<line class="spread" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`, x(r.Min), x(r.Max), y+9, y+9)
		}
		fmt.Fprintf(&b, `<text class="value" x="%.1f" y="%d">%s</text>`, x(r.Max)+6, y+14, html.EscapeString(values[i]))
	}
	b.WriteString("</svg>")
	return b.String()
}
