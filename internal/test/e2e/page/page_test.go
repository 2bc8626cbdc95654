package page

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"google.golang.org/protobuf/proto"
)

// twenty is a relay with 20 clients, of which one will reject and two will not answer.
func twenty(t *testing.T) (*world, *browser) {
	t.Helper()
	w := newWorld(t)
	w.fleet(20)
	b := newBrowser(t)
	b.as(1440, 900, "light")
	return w, b
}

// open shows a view.
func (b *browser) open(address string) {
	b.t.Helper()
	b.eventually(chromedp.Navigate(address)) // a form that was sent may still lead elsewhere
	b.do(chromedp.WaitReady("footer"))
}

// sees waits until a part of the view has a text, and returns how long that took.
func (b *browser) sees(selector, want string, within time.Duration) time.Duration {
	b.t.Helper()
	begin := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		got := b.text(selector)
		took := time.Since(begin)
		if strings.Contains(got, want) {
			return took
		}
		if took > within {
			b.t.Fatalf("after %v %s is %q, want %q", took, selector, got, want)
		}
		<-tick.C
	}
}

func (b *browser) path() (path string) {
	b.t.Helper()
	b.do(chromedp.Evaluate("location.pathname + location.search", &path))
	return path
}

func (b *browser) eval(expression string) (v any) {
	b.t.Helper()
	b.do(chromedp.Evaluate(expression, &v))
	return v
}

const (
	rejecting = `.numbers a[href*="rejected"] b`
	wait      = 5 * time.Second
)

// TestFollows: a view shows within a second what has changed, and keeps the focus; paused, it does not change.
func TestFollows(t *testing.T) {
	w, b := twenty(t)
	b.open(w.url + "/")
	b.sees("#live", "live", wait)
	b.sees(rejecting, "0", wait)
	b.do(chromedp.Focus(`.numbers a[href*="stale"]`))
	w.poison()
	w.until("one rejects", func() bool { return w.relay.Summary().Sync["nacked"] == 1 })
	took := b.sees(rejecting, "1", time.Second)
	t.Logf("a rejection is on the page after %v", took)
	b.sees(".parts", "1 rejected", wait)
	b.sees(".events tbody", "Rejected", wait)
	if on := b.eval(`document.activeElement.getAttribute("href")`); on != "/ui/clients?state=stale" {
		t.Errorf("the focus has gone to %v", on)
	}
	b.do(chromedp.Click("#pause"))
	b.sees("#live", "paused", wait)
	w.plane.put(2, map[string]proto.Message{"checkout": cluster("checkout", 2)})
	w.until("nobody rejects", func() bool { return w.relay.Summary().Sync["nacked"] == 0 })
	if got := b.text(rejecting); got != "1" {
		t.Errorf("a paused view changes: %s", got)
	}
	b.do(chromedp.Click("#pause"))
	b.sees(rejecting, "0", 2*time.Second)

	w.plane.grpc.Stop()
	b.sees("#head", "Control plane down", 10*time.Second)
	b.sees(".planes", "connection refused", wait)
	b.noErrors()
}

// TestFindsAClient: somebody looks for the client that rejects, sees why and what differs, has it sent everything again,
// and disconnects it.
func TestFindsAClient(t *testing.T) {
	w, b := twenty(t)
	w.poison()
	w.until("one rejects", func() bool { return w.relay.Summary().Sync["nacked"] == 1 })
	b.open(w.url + "/ui/clients")
	b.do(chromedp.SendKeys(`input[name="q"]`, "mail-9d"))
	b.sees(".title .note", "1 of 20", wait)
	if path := b.path(); path != "/ui/clients?q=mail-9d" {
		t.Errorf("the address is %s", path)
	}
	if on := b.eval(`document.activeElement.name`); on != "q" {
		t.Errorf("typing has lost the focus to %v", on)
	}
	b.sees(".chips", "Rejected 1", wait)
	b.do(chromedp.Click(".clients .client a"), chromedp.WaitReady(".alert"))
	b.sees(".alert", "no such transport socket", wait)
	b.sees(".alert", "<b>&", wait)
	b.sees(".diff", `"66s"`, wait)
	b.sees(".diff", "connect_timeout", wait)
	at := b.path()
	before := w.responses(at)
	b.do(chromedp.Click(`form[action$="/resync"] button`))
	w.until("it is sent everything again", func() bool { return w.responses(at) > before })
	b.do(chromedp.WaitReady(".alert"))
	if path := b.path(); path != at {
		t.Errorf("after the resync it is at %s", path)
	}
	b.do(chromedp.Click("#end summary"), chromedp.WaitVisible(`form[action$="/disconnect"] button`))
	w.poison() // the view changes meanwhile,
	b.sees("#end", "Disconnect this client", wait)
	b.do(chromedp.WaitVisible(`form[action$="/disconnect"] button`), chromedp.Click(`form[action$="/disconnect"] button`)) // and what was opened stays open
	w.until("the client is gone", func() bool { return w.relay.Count() == 19 })
	b.open(w.url + at)
	b.sees("main", "There is no stream", wait)
}

// TestOutOfStep: a resource that some clients lack is the first of its list, and its view says who lacks it, which version they
// have, and what they were sent; each view leads to all clients that are out of step.
func TestOutOfStep(t *testing.T) {
	w, b := twenty(t)
	w.poison()
	w.until("three are out of step", func() bool { return w.synced() == 17 })
	b.open(w.url + "/ui/resources?type=CDS")
	b.sees("#out", "3 out of step", wait)
	first := `section.stack tbody tr:first-child`
	b.sees(first, "checkout", wait)
	b.sees(first, "1 rejected", wait)
	b.sees(first, "2 stale", wait)
	b.do(chromedp.Click(first+" a"), chromedp.WaitReady("#h-out"))
	b.sees("main", "17 of 20 clients in step", wait)
	b.sees(`section[aria-labelledby="h-out"] tbody tr:first-child`, "no such transport socket", wait)
	b.sees(`section[aria-labelledby="h-out"] td[data-label="Has"]`, "probably 1:", wait)
	has := b.text(`section[aria-labelledby="h-out"] td[data-label="Has"]`)
	if sent := b.text(`section[aria-labelledby="h-out"] td[data-label="Sent last"]`); sent == "" || strings.Contains(has, sent) {
		t.Errorf("it has what it rejects: %q, sent %q", has, sent)
	}
	b.do(chromedp.Click("#out"), chromedp.WaitReady(".clients"))
	b.sees(".title .note", "3 of 20", wait)
	b.open(w.url + "/ui/resource?type=EDS&name=no-such-service")
	b.sees(".title", "Does not exist", wait)
	b.noErrors()
}

// TestNarrow: on a phone no view is wider than the window, and no table that is stacked there has a part that is cut off.
func TestNarrow(t *testing.T) {
	w, b := twenty(t)
	w.poison()
	w.until("three are out of step", func() bool { return w.synced() == 17 })
	b.as(390, 900, "light")
	for name, path := range w.views() {
		b.open(w.url + path)
		if over := b.eval(overflowing); over != "" {
			t.Errorf("%s is too wide: %v", name, over)
		}
		if cut := b.eval(`[...document.querySelectorAll(".scroll")].filter(e => e.querySelector(".stacks, .clients, .events") && e.scrollWidth > e.clientWidth + 1).map(e => e.ariaLabel).join()`); cut != "" {
			t.Errorf("%s: %v is cut off", name, cut)
		}
	}
}

// responses is how many a client was sent.
func (w *world) responses(path string) int64 {
	var stream uint64
	_, _ = fmt.Sscanf(path, "/ui/clients/%d", &stream)
	c, _ := w.relay.Client(stream)
	return c.Responses
}

// TestWithoutScripts: everything can be done without JavaScript.
func TestWithoutScripts(t *testing.T) {
	w, b := twenty(t)
	w.poison()
	w.until("one rejects", func() bool { return w.relay.Summary().Sync["nacked"] == 1 })
	b.scripts(false)
	page := func(want string) {
		t.Helper()
		b.shown(want)
	}
	b.open(w.url + "/")
	page("Rejected")
	page("as of ")
	b.eventually(chromedp.Click(`.numbers a[href*="rejected"]`))
	page("1 of 20 clients")
	b.eventually(chromedp.SetValue(`input[name="q"]`, "mail", chromedp.ByQuery))
	b.eventually(chromedp.Click(".filter button"))
	page(`value="mail"`)
	page("mail-9d80")
	b.eventually(chromedp.Click(".clients .client a"))
	page("no such transport socket")
	page("connect_timeout")
	for _, c := range w.relay.Clients() {
		if c.Sync == "nacked" {
			before := c.Responses
			b.eventually(chromedp.Click(`form[action$="/resync"] button`))
			w.until("it is sent everything again", func() bool { return w.responses(fmt.Sprintf("/ui/clients/%d", c.Stream)) > before })
		}
	}
	b.open(w.url + "/ui/events")
	b.eventually(chromedp.Click("#kinds summary"))
	b.eventually(chromedp.Click(`input[value="nack"]`))
	b.eventually(chromedp.Click("#kinds button"))
	page("Show all")
}

// shown looks for a text in the view as it was loaded, without its scripts.
func (b *browser) shown(want string) {
	b.t.Helper()
	var html string
	for range 50 { // the browser may be on its way there
		if err := b.try(chromedp.OuterHTML("body", &html, chromedp.ByQuery)); err == nil && strings.Contains(html, want) {
			return
		}
		<-time.After(20 * time.Millisecond)
	}
	b.t.Errorf("there is no %q", want)
}

// TestKeyboard: with the keyboard alone somebody skips to the content, gets to the clients, filters them, opens one, and has
// it sent everything again; where the focus is can be seen.
func TestKeyboard(t *testing.T) {
	w, b := twenty(t)
	w.poison()
	w.until("one rejects", func() bool { return w.relay.Summary().Sync["nacked"] == 1 })
	b.open(w.url + "/")
	press := func(key string) { b.do(chromedp.KeyEvent(key)) }
	press(kb.Tab)
	if on := b.eval(`document.activeElement.className`); on != "skip" {
		t.Errorf("the first stop is %v", on)
	}
	if on := b.eval(`document.activeElement.getBoundingClientRect().left >= 0`); on != true {
		t.Error("the link that skips is not seen when it has the focus")
	}
	press(kb.Enter)
	if on := b.eval(`document.activeElement.id`); on != "main" {
		t.Errorf("the skip leads to %v", on)
	}
	b.tabTo(`.numbers a[href*="rejected"]`)
	if style := b.eval(`getComputedStyle(document.activeElement).outlineStyle`); style != "solid" {
		t.Errorf("the focus is shown as %v", style)
	}
	press(kb.Enter)
	b.do(chromedp.WaitReady(".clients"))
	b.tabTo(`.clients .client a`)
	press(kb.Enter)
	b.do(chromedp.WaitReady(".alert"))
	at := b.path()
	before := w.responses(at)
	b.tabTo(`form[action$="/resync"] button`)
	press(kb.Enter)
	w.until("it is sent everything again", func() bool { return w.responses(at) > before })
	b.do(chromedp.WaitReady(".alert"))
	b.tabTo("#end summary")
	press(kb.Enter)
	b.tabTo(`form[action$="/disconnect"] button`)
	press(kb.Enter)
	w.until("the client is gone", func() bool { return w.relay.Count() == 19 })
}

// tabTo presses Tab until an element has the focus.
func (b *browser) tabTo(selector string) {
	b.t.Helper()
	for range 60 {
		b.do(chromedp.KeyEvent(kb.Tab))
		if b.eval(`document.activeElement.matches(`+quote(selector)+`)`) == true {
			return
		}
	}
	b.t.Fatalf("Tab does not lead to %s", selector)
}

// TestSchemes: the page is light or dark as the browser wants it.
func TestSchemes(t *testing.T) {
	w, b := twenty(t)
	seen := make(map[string]any)
	for _, scheme := range []string{"light", "dark"} {
		b.as(1440, 900, scheme)
		b.open(w.url + "/")
		seen[scheme] = b.eval(`getComputedStyle(document.body).backgroundColor`)
	}
	if seen["light"] != "rgb(246, 247, 249)" || seen["dark"] != "rgb(15, 19, 24)" {
		t.Errorf("%v", seen)
	}
}

// TestSecretIsNowhere: no view has the body of a secret, nor does what the browser keeps of it.
func TestSecretIsNowhere(t *testing.T) {
	w, b := twenty(t)
	w.poison()
	w.until("one rejects", func() bool { return w.relay.Summary().Sync["nacked"] == 1 })
	views := w.views()
	views["sds"], views["secret"] = "/ui/resources?type=SDS", "/ui/resource?type=SDS&name=server-key"
	listed := false
	for name, path := range views {
		b.open(w.url + path)
		var html string
		b.do(chromedp.OuterHTML("html", &html, chromedp.ByQuery))
		if strings.Contains(html, planted) {
			t.Errorf("%s shows the secret", name)
		}
		listed = listed || strings.Contains(html, "server-key")
	}
	if !listed {
		t.Error("the secret is not even listed")
	}
	b.noErrors()
}

// TestAnotherOrigin: a web page of another origin, open in the same browser, acts on nothing and reads nothing.
func TestAnotherOrigin(t *testing.T) {
	w, b := twenty(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	evil := &http.Server{Handler: http.HandlerFunc(func(to http.ResponseWriter, _ *http.Request) {
		to.Header().Set("Content-Type", "text/html")
		for _, path := range []string{"/clients/1/disconnect", "/clients/2/resync", "/drain?for=0s", "/guard/release"} {
			fmt.Fprintf(to, `<form method="post" action="%s%s"></form>`, w.url, path)
		}
		fmt.Fprintf(to, `<iframe src="%s/"></iframe><p id="read">waiting</p><script>
			for (const p of ["/clients/1/disconnect", "/drain?for=0s"]) fetch("%s" + p, {method: "POST", mode: "no-cors"}).catch(() => {});
			fetch("%s/clients").then(r => r.text()).then(t => { read.textContent = t; }, () => { read.textContent = "refused"; });
		</script>`, w.url, w.url, w.url)
	})}
	go evil.Serve(l)
	t.Cleanup(func() { evil.Close() })
	for i := range 4 {
		b.do(chromedp.Navigate("http://"+l.Addr().String()), chromedp.WaitReady("#read"))
		b.sees("#read", "refused", wait)
		b.eval(fmt.Sprintf("document.forms[%d].submit()", i))
		b.sees("body", "cross-origin", wait)
	}
	if ready, why := w.relay.Ready(); !ready || w.relay.Count() != 20 {
		t.Errorf("ready: %v, %s; %d clients", ready, why, w.relay.Count())
	}
}

// TestTooManyPages: with as many streams of events as there may be, another page works, and looks from time to time; a
// thousand more are refused, and the relay serves its clients as before.
func TestTooManyPages(t *testing.T) {
	w, b := twenty(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	client := &http.Client{Transport: &http.Transport{MaxIdleConns: 1}}
	open, refused := 0, 0
	for range 1000 {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+"/ui/live", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		switch {
		case err != nil:
			refused++
		case resp.StatusCode == http.StatusOK:
			open++ // it stays open
		default:
			refused++
			resp.Body.Close()
		}
	}
	if open > 64 || refused < 900 {
		t.Errorf("%d streams are open, %d were refused", open, refused)
	}
	b.open(w.url + "/")
	b.sees("#live", "every 10 s", wait)
	w.poison()
	w.until("one rejects", func() bool { return w.relay.Summary().Sync["nacked"] == 1 })
	b.sees(rejecting, "1", 12*time.Second)
}

// TestOutageAndRelease: the page says that the control plane is away, since when, and when the relay tries again; when it
// comes back without most of what it had, removals are held back until somebody releases them there.
func TestOutageAndRelease(t *testing.T) {
	w, b := twenty(t)
	b.open(w.url + "/")
	w.plane.grpc.Stop()
	b.sees("#head", "Control plane down", 10*time.Second)
	b.sees(".planes", "connection refused", wait)
	b.shots("outage")
	b.open(w.url + "/ui/planes")
	b.sees("main", "Clients keep what they have", wait)
	b.sees(".timeline", "Control plane lost", wait)
	b.shots("outage-planes")
	b.open(w.url + "/")
	w.plane.take(cds, services[2:]...)
	w.plane.serve(t, w.plane.addr)
	b.sees(".alert", "Removals are held back", 20*time.Second)
	b.sees(".alert", "Release 10 removals", wait)
	if n := held(w); n != 10 {
		t.Errorf("%d removals are held back", n)
	}
	b.shots("held")
	b.do(chromedp.Click(".held button"))
	w.until("they are released", func() bool { return held(w) == 0 })
	b.do(chromedp.WaitNotPresent(".held"))
	b.sees(".events tbody", "Removals released", wait)
	b.noErrors()
}

func held(w *world) (n int) {
	for _, hub := range w.relay.Groups() {
		for _, s := range hub.Summarize() {
			n += s.Held
		}
	}
	return n
}
