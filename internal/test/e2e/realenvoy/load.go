package realenvoy

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Backend serves HTTP on a loopback address until the test ends, and answers with its
// name.
func Backend(t testing.TB, name string) (address string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, name) }))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// Count is what has become of a load's requests.
type Count struct {
	// Sent are those that have ended.
	Sent int
	// Answers counts what those with status 200 said, which is a Backend's name.
	Answers map[string]int
	// Failures counts the others by status and the first words of the body, or by error.
	Failures map[string]int
	// Unsent are those that were not sent, because too many waited for an answer: the
	// machine is too slow for the rate. Those that wait fail if they wait for too long.
	Unsent int
}

// Failed is the number of requests that were not answered with 200.
func (c Count) Failed() (n int) {
	for _, more := range c.Failures {
		n += more
	}
	return n
}

// String is for a test's output.
func (c Count) String() string {
	return fmt.Sprintf("%d requests, %d failed: %v, %d not sent", c.Sent, c.Failed(), c.Failures, c.Unsent)
}

// Load sends requests at a rate, whatever becomes of those before.
type Load struct {
	stop func()

	mu    sync.Mutex
	count Count
	last  string
	open  int
}

// most is how many requests may wait for an answer at once.
const most = 512

// Drive sends GET requests to an address, such as a listener's, until Stop or the
// test's end. Each change is made to each request.
func Drive(t testing.TB, address string, perSecond int, changes ...func(*http.Request)) *Load {
	transport := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	l := &Load{count: Count{Answers: make(map[string]int), Failures: make(map[string]int)}}
	done := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		begin := time.Now()
		for n := 0; ; {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			for ; n < int(time.Since(begin).Seconds()*float64(perSecond)); n++ {
				if l.begins() {
					work.Go(func() { l.ends(request(client, address, changes)) })
				}
			}
		}
	})
	l.stop = sync.OnceFunc(func() {
		close(done)
		work.Wait()
		transport.CloseIdleConnections()
	})
	t.Cleanup(l.stop)
	return l
}

// begins says whether one more may be sent.
func (l *Load) begins() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == most {
		l.count.Unsent++
		return false
	}
	l.open++
	return true
}

func (l *Load) ends(answer, failure string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	l.count.Sent++
	if failure != "" {
		l.count.Failures[failure]++
		return
	}
	l.count.Answers[answer]++
	l.last = answer
}

// Count is what has become of them so far.
func (l *Load) Count() Count {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.count
	c.Answers, c.Failures = maps.Clone(c.Answers), maps.Clone(c.Failures)
	return c
}

// Last is the last answer with status 200.
func (l *Load) Last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// Stop waits for what is under way, and counts. It may be called twice.
func (l *Load) Stop() Count {
	l.stop()
	return l.Count()
}

// Get sends one request and returns what it was answered, or how it failed.
func Get(address string, changes ...func(*http.Request)) (answer, failure string) {
	transport := &http.Transport{DisableKeepAlives: true, DisableCompression: true}
	return request(&http.Client{Transport: transport, Timeout: 30 * time.Second}, address, changes)
}

func request(client *http.Client, address string, changes []func(*http.Request)) (answer, failure string) {
	req, err := http.NewRequest(http.MethodGet, "http://"+address+"/", nil)
	if err != nil {
		return "", err.Error()
	}
	for _, change := range changes {
		change(req)
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", cause(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", cause(err)
	}
	said := strings.TrimSpace(string(text))
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Sprintf("%d %s", resp.StatusCode, said[:min(len(said), 80)])
	}
	return said, ""
}

// cause is an error without the addresses in it, so that errors can be counted.
func cause(err error) string {
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return "no answer in time"
	}
	for next := err; next != nil; next = errors.Unwrap(next) {
		err = next
	}
	return err.Error()
}
