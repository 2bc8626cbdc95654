package tracing

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc/credentials"
)

// OTLP sends spans over gRPC to a collector at http://host:port, in plaintext, or
// https://host:port, with TLS as it is configured. It connects when there is something to
// send. Headers come from OTEL_EXPORTER_OTLP_HEADERS, as the SDK has it.
func OTLP(endpoint string, security *tls.Config) (sdk.SpanExporter, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("tracing.otlp_endpoint: %q is not http://host:port or https://host:port", endpoint)
	}
	options := []otlptracegrpc.Option{
		otlptracegrpc.WithEndpoint(u.Host),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{Enabled: true, InitialInterval: time.Second, MaxInterval: 5 * time.Second, MaxElapsedTime: 30 * time.Second}),
	}
	if u.Scheme == "http" {
		options = append(options, otlptracegrpc.WithInsecure())
	} else {
		options = append(options, otlptracegrpc.WithTLSCredentials(credentials.NewTLS(security)))
	}
	e, err := otlptrace.New(context.Background(), otlptracegrpc.NewClient(options...))
	if err != nil {
		return nil, fmt.Errorf("tracing.otlp_endpoint: %w", err)
	}
	return e, nil
}

// exporter wraps the given one with a timeout and a log of its own, since the SDK reports
// each failure to a global handler.
type exporter struct {
	sdk.SpanExporter
	limits     Limits
	complaints *complaints
	stop       context.Context // over: nothing is sent any more
	abort      context.CancelFunc
	shut       chan struct{} // closed when the given one has been shut down
	once       sync.Once
}

func newExporter(to sdk.SpanExporter, l Limits, log *slog.Logger) *exporter {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	e := &exporter{SpanExporter: to, limits: l, complaints: &complaints{log: log, every: l.Complain}, shut: make(chan struct{})}
	e.stop, e.abort = context.WithCancel(context.Background())
	return e
}

// ExportSpans sends a batch; it never fails, and says so itself if it does.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	ctx, cancel := context.WithTimeout(ctx, e.limits.Export)
	defer cancel()
	defer context.AfterFunc(e.stop, cancel)()
	err := e.stop.Err()
	if err == nil {
		err = e.SpanExporter.ExportSpans(ctx, spans)
	}
	if err != nil {
		e.complaints.lost(len(spans), err.Error())
	} else {
		e.complaints.sent()
	}
	return nil
}

// Shutdown ends the given exporter.
func (e *exporter) Shutdown(ctx context.Context) (err error) {
	e.once.Do(func() {
		defer close(e.shut)
		err = e.SpanExporter.Shutdown(ctx)
	})
	return err
}

// close sends the remaining spans, within the time for it, and gives up the rest.
func (e *exporter) close(p *sdk.TracerProvider) {
	ctx, cancel := context.WithTimeout(context.Background(), e.limits.Flush)
	defer cancel()
	_ = p.Shutdown(ctx) // what is lost by it is told by ExportSpans
	e.abort()
	patience := time.NewTimer(time.Second)
	defer patience.Stop()
	select {
	case <-e.shut:
	case <-patience.C:
	}
}

// complaints is what is logged of spans that are lost: the first at once, and then how many
// there were, from time to time.
type complaints struct {
	log   *slog.Logger
	every time.Duration

	mu    sync.Mutex
	next  time.Time
	count int
	told  bool // the last line said that they are lost, not that they are taken again
}

func (c *complaints) lost(n int, why string) {
	c.mu.Lock()
	now := time.Now()
	c.count += n
	if now.Before(c.next) {
		c.mu.Unlock()
		return
	}
	count := c.count
	c.count, c.next, c.told = 0, now.Add(c.every), true
	c.mu.Unlock()
	c.log.Warn("traces are lost; nothing else is affected: see that a collector takes OTLP over gRPC at tracing.otlp_endpoint", "err", why, "count", count)
}

// sent notes that the collector takes spans.
func (c *complaints) sent() {
	c.mu.Lock()
	again := c.told
	c.told = false
	c.mu.Unlock()
	if again {
		c.log.Info("the collector takes traces again")
	}
}

// BridgeErrors sends the errors of OpenTelemetry's SDK to a log, a few of them: the SDK
// has one handler for the whole process.
func BridgeErrors(log *slog.Logger) {
	c := &complaints{log: log, every: DefaultLimits().Complain}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { c.lost(0, err.Error()) }))
}
