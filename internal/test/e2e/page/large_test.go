package page

import (
	"io"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// large is how many clients TestLarge has.
func large(t *testing.T) int {
	t.Helper()
	if text := os.Getenv("PAGE_CLIENTS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 100 {
			t.Fatalf("PAGE_CLIENTS is %q; use a number from 100 on", text)
		}
		return n
	}
	return 10_000
}

// TestLarge: with 10,000 clients a view is painted within a second, costs the relay at most 200 ms, and follows what
// changes.
func TestLarge(t *testing.T) {
	w := newWorld(t)
	n := large(t)
	w.fleet(n)
	b := newBrowser(t)
	b.as(1440, 900, "light")
	answered := func(path string) {
		t.Helper()
		begin := time.Now()
		resp, err := http.Get(w.url + path)
		if err != nil {
			t.Fatal(err)
		}
		size, _ := io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		took := time.Since(begin)
		t.Logf("%s: answered after %v (%d KiB)", path, took, size>>10)
		if took > 200*time.Millisecond {
			t.Errorf("%s: answered after %v", path, took)
		}
	}
	for _, path := range []string{"/", "/ui/clients", "/ui/clients?q=cart&sort=-behind", "/ui/resources?type=CDS", "/ui/resource?type=CDS&name=checkout"} {
		answered(path)
		b.open(w.url + path)
		b.do(chromedp.Poll(`performance.getEntriesByName("first-contentful-paint").length > 0`, nil))
		paint := b.eval(`performance.getEntriesByName("first-contentful-paint")[0].startTime`).(float64)
		t.Logf("%s: painted after %.0f ms", path, paint)
		if paint > 1000 {
			t.Errorf("%s: painted after %.0f ms", path, paint)
		}
		w.plane.put(2, nil)
	}
	b.open(w.url + "/")
	b.sees("#live", "live", wait)
	w.poison()
	w.until("some reject", func() bool { return w.relay.Summary().Sync["nacked"] > n/200 })
	begin := time.Now()
	b.do(chromedp.Poll(`Number(document.querySelector('.numbers a[href*="rejected"] b').innerText.replace(/,/g, "")) > `+strconv.Itoa(n/200), nil))
	t.Logf("that %d reject is on the page after %v", w.relay.Summary().Sync["nacked"], time.Since(begin))
	answered("/ui/resources?type=CDS")
	answered("/ui/resource?type=CDS&name=checkout")

	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	t.Logf("the heap of relay and clients is %d MiB", before.HeapAlloc>>20)
	tabs := []*browser{b}
	for range 4 {
		other := newBrowser(t)
		other.open(w.url + "/ui/clients")
		other.sees("#live", "live", wait)
		tabs = append(tabs, other)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	grown := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("%d pages that are open take %.1f MiB more", len(tabs), float64(grown)/(1<<20))
	if grown > 32<<20 {
		t.Errorf("%d pages take %d MiB", len(tabs), grown>>20)
	}
}
