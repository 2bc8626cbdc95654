package page

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	cdp "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser is a tab of Chromium.
type browser struct {
	t   testing.TB
	ctx context.Context

	mu         sync.Mutex
	complaints []string
}

// chromium is the browser's binary.
func chromium(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("CHROMIUM"); path != "" {
		return path
	}
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("there is no Chromium: install the package chromium, or set CHROMIUM to its binary")
	}
	return path
}

func newBrowser(t testing.TB) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium(t)), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("hide-scrollbars", true))
	ctx, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(ctx)
	t.Cleanup(end)
	b := &browser{t: t, ctx: ctx}
	b.do(chromedp.Navigate("about:blank"))
	b.watch()
	return b
}

// do runs actions, each within a minute.
func (b *browser) do(actions ...chromedp.Action) {
	b.t.Helper()
	for _, a := range actions {
		if err := b.try(a); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *browser) try(a chromedp.Action) error {
	done := make(chan error, 1)
	go func() { done <- chromedp.Run(b.ctx, a) }()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		return context.DeadlineExceeded
	}
}

// eventually does something in a view to which the browser may still be on its way.
func (b *browser) eventually(a chromedp.Action) {
	b.t.Helper()
	err := b.try(a)
	for range 20 {
		if err == nil {
			return
		}
		<-time.After(50 * time.Millisecond)
		err = b.try(a)
	}
	b.t.Fatal(err)
}

// as sets how wide the window is, and the scheme.
func (b *browser) as(width, height int64, scheme string) {
	b.t.Helper()
	b.do(
		emulation.SetDeviceMetricsOverride(width, height, 1, width < 600),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
	)
}

// scripts lets views run their script, or not.
func (b *browser) scripts(on bool) {
	b.t.Helper()
	b.do(emulation.SetScriptExecutionDisabled(!on))
}

func (b *browser) text(selector string) (text string) {
	b.t.Helper()
	b.do(chromedp.Evaluate(`(document.querySelector(`+quote(selector)+`)||{}).innerText||""`, &text))
	return text
}

// shot writes a picture of the whole view, if PAGE_SHOTS says where.
func (b *browser) shot(name string) {
	b.t.Helper()
	dir := os.Getenv("PAGE_SHOTS")
	if dir == "" {
		return
	}
	var png []byte
	b.do(chromedp.ActionFunc(func(ctx context.Context) (err error) {
		png, err = cdp.CaptureScreenshot().WithCaptureBeyondViewport(true).Do(ctx)
		return err
	}))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// watch collects what the browser complains of: scripts that fail, and what the policy refuses.
func (b *browser) watch() {
	chromedp.ListenTarget(b.ctx, func(e any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := e.(type) {
		case *runtime.EventExceptionThrown:
			b.complaints = append(b.complaints, e.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			if e.Entry.Level == log.LevelError && e.Entry.Source != log.SourceNetwork {
				b.complaints = append(b.complaints, e.Entry.Text)
			}
		}
	})
	b.do(log.Enable())
}

// noErrors fails if the browser has complained.
func (b *browser) noErrors() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.complaints) > 0 {
		b.t.Errorf("the browser complains: %q", b.complaints)
	}
}

func quote(s string) string { return strconv.Quote(s) }

// shots writes pictures of a view, wide and narrow, in both schemes, and leaves it wide and light.
func (b *browser) shots(name string) {
	b.t.Helper()
	for _, scheme := range []string{"dark", "light"} {
		for _, width := range []int64{390, 1440} {
			b.as(width, 900, scheme)
			b.shot(fmt.Sprintf("%s-20-%s-%d", name, scheme, width))
		}
	}
}
