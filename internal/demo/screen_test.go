package demo

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func example() state {
	return state{
		elapsed: 12_300 * time.Millisecond, of: 30 * time.Second,
		cpAddr: "127.0.0.1:40123", relayAddr: "127.0.0.1:41231", admin: "http://127.0.0.1:18001/",
		up: true, streams: 2, delta: 25, sotw: 25, connected: 49,
		responses: 152, deliveries: 4310, upBytes: 42_190, downBytes: 2_013_266,
		travel: travel{changes: 37, last: 1_940 * time.Microsecond, worst: 12 * time.Millisecond, latest: "cluster of cart"},
		lines: []line{
			{200 * time.Millisecond, "50 of 50 clients connected, 50 have all they use after 179 ms"},
			{2600 * time.Millisecond, "delta-7 back after 1.5 s: 32 versions, 3 changed, sent 3 (+1 to warm)"},
			{12_100 * time.Millisecond, "a line that is longer than the terminal is wide, so that it goes on below, between two words"},
		},
	}
}

func TestScreen(t *testing.T) {
	gone := example()
	gone.up, gone.streams, gone.of, gone.admin, gone.lines = false, 0, 0, "", nil
	for name, s := range map[string]state{"up": example(), "gone": gone, "beginning": {of: time.Minute}} {
		got := strings.Join(screen(s, 80, false), "\n") + "\n"
		file := filepath.Join("testdata", name+".txt")
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s: got\n%swant\n%s", name, got, want)
		}
	}
}

func TestScreenFitsAnyWidth(t *testing.T) {
	escapes := regexp.MustCompile("\x1b\\[[0-9]*m")
	for width := range 120 {
		plain := screen(example(), width, false)
		for _, l := range plain {
			if n := utf8.RuneCountInString(l); n > width {
				t.Errorf("width %d: a line of %d: %q", width, n, l)
			}
		}
		colored := escapes.ReplaceAllString(strings.Join(screen(example(), width, true), "\n"), "")
		if colored != strings.Join(plain, "\n") {
			t.Errorf("width %d: colour changes the text", width)
		}
	}
}
