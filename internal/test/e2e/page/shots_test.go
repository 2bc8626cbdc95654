package page

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"google.golang.org/protobuf/proto"
)

// TestShots makes the pictures that people look at, with 20 clients and with 10,000 (PAGE_CLIENTS): each view, light and dark, wide
// and narrow.
func TestShots(t *testing.T) {
	if os.Getenv("PAGE_SHOTS") == "" {
		t.Skip("PAGE_SHOTS names no directory for them")
	}
	b := newBrowser(t)
	for _, n := range []int{20, large(t)} {
		w := newWorld(t)
		w.fleet(n)
		w.change()
		w.poison()
		w.until("some reject", func() bool { return w.relay.Summary().Sync["nacked"] > 0 })
		w.until("some are stale", func() bool { return w.relay.Summary().Lagging[0] > 0 })
		for name, path := range w.views() {
			for _, scheme := range []string{"light", "dark"} {
				for _, width := range []int64{1440, 390} {
					b.as(width, 900, scheme)
					b.do(chromedp.Navigate(w.url+path), chromedp.WaitReady("main"))
					var over string
					b.do(chromedp.Evaluate(overflowing, &over))
					if over != "" {
						t.Errorf("%s at %d pixels is wider than the window: %s", name, width, over)
					}
					b.shot(fmt.Sprintf("%s-%d-%s-%d", name, n, scheme, width))
				}
			}
		}
	}
}

// TestPicture makes the picture at the beginning of the README, as PAGE_PICTURE.
func TestPicture(t *testing.T) {
	to := os.Getenv("PAGE_PICTURE")
	if to == "" {
		t.Skip("PAGE_PICTURE names no file for it")
	}
	w := newWorld(t)
	w.fleet(240)
	w.change()
	w.poison()
	w.until("some reject", func() bool { return w.relay.Summary().Sync["nacked"] > 0 })
	w.until("some are stale", func() bool { return w.relay.Summary().Lagging[0] > 0 })
	b := newBrowser(t)
	b.as(1280, 1150, "light")
	b.open(w.url + "/")
	b.sees("#live", "live", wait)
	var png []byte
	b.do(chromedp.CaptureScreenshot(&png))
	if len(png) > 200<<10 {
		t.Errorf("the picture has %d KiB", len(png)>>10)
	}
	if err := os.WriteFile(to, png, 0o644); err != nil {
		t.Fatal(err)
	}
}

// overflowing are elements that are wider than the window, unless they scroll in a region of their own.
const overflowing = `(() => { const w = document.documentElement.clientWidth; if (document.documentElement.scrollWidth <= w) return "";
	return [...document.querySelectorAll("main *, header *")].filter(e => e.getBoundingClientRect().right > w + 1 && !e.closest(".scroll, nav")).slice(0, 3).map(e => e.tagName + "." + e.className).join(" ") || "something"; })()`

// change has the control plane change endpoints a few times, so that there is something to measure.
func (w *world) change() {
	for i := range 20 {
		w.plane.put(10+i, map[string]proto.Message{services[i%len(services)]: endpoints(services[i%len(services)], i)})
	}
	w.until("the changes are there", func() bool { return w.synced() >= w.relay.Count()-1 })
}

// views are the paths of all views, by a name for each.
func (w *world) views() map[string]string {
	views := map[string]string{
		"overview": "/", "clients": "/ui/clients", "resources": "/ui/resources?type=CDS", "resource": "/ui/resource?type=CDS&name=checkout",
		"planes": "/ui/planes", "events": "/ui/events", "missing": "/ui/clients/99999999", "nobody": "/ui/clients?q=nobody+is+called+this",
	}
	for _, c := range w.relay.Clients() {
		if c.Sync == "nacked" {
			views["client"] = fmt.Sprintf("/ui/clients/%d", c.Stream)
		}
		if strings.Contains(fmt.Sprint(c.Types), "Secret") {
			views["names"] = fmt.Sprintf("/ui/clients/%d?names=all", c.Stream)
		}
	}
	return views
}
