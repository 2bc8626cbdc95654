//go:build linux

// Package process owns the processes of the servers under test: it starts and ends
// them, and reads the system's figures about them and their own metrics. It never
// looks at the system's other processes, and ends only those it has started. It
// knows Linux's /proc, and Prometheus's text format as far as Go programs use it.
package process

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Usage is what a process has used.
type Usage struct {
	CPU  time.Duration // since it began, user and system
	RSS  int64         // resident now, in bytes
	Peak int64         // resident at most since ResetPeak, in bytes
	FDs  int           // open file descriptors
}

// ReadUsage reads the usage of a process.
func ReadUsage(pid int) (u Usage, err error) {
	dir := fmt.Sprintf("/proc/%d", pid)
	if u.CPU, err = cpuTime(pid); err != nil {
		return u, fmt.Errorf("process: CPU time of %d: %w", pid, err)
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return u, fmt.Errorf("process: %w", err)
	}
	u.RSS, u.Peak = kib(string(status), "VmRSS:"), kib(string(status), "VmHWM:")
	if u.RSS == 0 {
		return u, fmt.Errorf("process: %s/status has no VmRSS: the process has ended", dir)
	}
	fds, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		return u, fmt.Errorf("process: %w", err)
	}
	u.FDs = len(fds)
	return u, nil
}

// cpuTime reads the clock of a process, which counts nanoseconds; /proc counts hundredths
// of a second. Its number is what clock_getcpuclockid(3) makes of a process's.
func cpuTime(pid int) (time.Duration, error) {
	const cpuClock = 2 // CPUCLOCK_SCHED, of all threads
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|cpuClock), &t); err != nil {
		return 0, err
	}
	return time.Duration(t.Nano()), nil
}

func kib(status, key string) int64 {
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			if f := strings.Fields(rest); len(f) > 0 {
				n, _ := strconv.ParseInt(f[0], 10, 64) // 0 is as good as missing
				return n << 10
			}
		}
	}
	return 0
}

// ResetPeak makes Usage.Peak count from now.
func ResetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0o200)
}

// Metrics are the series that a server exports, without labels: those that have them
// are added up.
type Metrics map[string]float64

// scrapeWithin is how long a server may take to answer.
const scrapeWithin = 10 * time.Second

// Scrape reads the metrics at a URL.
func Scrape(url string) (Metrics, error) {
	client := http.Client{Timeout: scrapeWithin, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		return nil, fmt.Errorf("process: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("process: %s answers %s", url, resp.Status)
	}
	m := make(Metrics)
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		m.take(lines.Text())
	}
	return m, lines.Err()
}

func (m Metrics) take(line string) {
	if strings.HasPrefix(line, "#") {
		return
	}
	name, rest, _ := strings.Cut(line, " ")
	if series, _, labels := strings.Cut(line, "{"); labels {
		name = series
		_, rest, _ = strings.Cut(line[strings.LastIndexByte(line, '}'):], " ")
	}
	if f := strings.Fields(rest); len(f) > 0 {
		if v, err := strconv.ParseFloat(f[0], 64); err == nil {
			m[name] += v
		}
	}
}
