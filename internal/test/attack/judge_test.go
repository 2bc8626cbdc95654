//go:build linux

package attack

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// mib is what a relay's memory may grow by, if an attack says nothing else (R32), in MiB.
const mib = 128

// judge says what must not have happened. Times and memory are judged in the long form, without the race detector.
func (w *world) judge(o outcome) {
	w.t.Helper()
	w.t.Logf("%s: gap %v, p99 %v before and %v meanwhile, %d MiB more; %s", w.Name, o.gap.Round(time.Millisecond),
		o.quiet.Round(time.Millisecond/10), o.loud.Round(time.Millisecond/10), o.grown>>20, o.report)
	defer w.note(o)
	if o.relayIsGone {
		w.t.Fatal("the relay is gone")
	}
	for _, end := range o.ends {
		w.t.Errorf("a stream of the victim has ended: %v", end)
	}
	for _, wrong := range o.wrong {
		w.t.Errorf("the victim was sent what it has not asked for: %s", wrong)
	}
	if o.meanwhile != nil {
		w.t.Error(o.meanwhile)
	}
	after := time.Now()
	peer.Eventually(w.t, 30*time.Second, func() error {
		if len(w.victim.since(after)) == 0 {
			return fmt.Errorf("the victim hears nothing after the attack")
		}
		return nil
	})
	if w.After != nil {
		if err := w.After(w); err != nil {
			w.t.Error(err)
		}
	}
	if long() {
		w.weigh(o)
	}
}

// weigh judges times and memory.
func (w *world) weigh(o outcome) {
	w.t.Helper()
	limit := w.MiB
	if limit == 0 {
		limit = mib
	}
	if o.grown > limit<<20 {
		w.t.Errorf("the relay took %d MiB more, and may take %d", o.grown>>20, limit)
	}
	if o.gap > 2*time.Second {
		w.t.Errorf("the victim was without an update for %v", o.gap)
	}
	if !w.SlowPlane && o.loud > max(2*o.quiet, 20*time.Millisecond, w.Late) {
		w.t.Errorf("p99 was %v, and %v before", o.loud, o.quiet)
	}
}

// row is one of the table of docs/security.md.
type row struct {
	ID     string  `json:"id"`
	Attack string  `json:"attack"`
	Gap    float64 `json:"gap_s"`
	Quiet  float64 `json:"quiet_p99_ms"`
	P99    float64 `json:"p99_ms"`
	Grown  int64   `json:"grown_mib"`
	Report string  `json:"report"`
	Failed bool    `json:"failed,omitempty"`
}

// rows are those of this run.
var rows struct {
	sync.Mutex
	all []row
}

func (w *world) note(o outcome) {
	ms := func(d time.Duration) float64 { return float64(d.Round(time.Millisecond/10).Microseconds()) / 1000 }
	rows.Lock()
	defer rows.Unlock()
	rows.all = append(rows.all, row{w.ID, w.Name, o.gap.Round(10 * time.Millisecond).Seconds(), ms(o.quiet), ms(o.loud), o.grown >> 20, o.report, w.t.Failed()})
}

// noteEnd is for a test that judges what is sent, and no times.
func (w *world) noteEnd() {
	w.t.Cleanup(func() { w.note(outcome{report: "judged by what is sent and logged"}) })
}

// save writes the rows of a long run to the file that ATTACK_RESULTS names.
func save() error {
	path := os.Getenv("ATTACK_RESULTS")
	if path == "" {
		return nil
	}
	text, err := json.MarshalIndent(rows.all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
