package config

import (
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// maxUnixPath is the longest socket path Linux takes; the 108th byte is a zero.
const maxUnixPath = 107

// SplitListen splits an address of downstream.listen or admin.listen into the
// network ("tcp" or "unix") and the address that [net.Listen] takes. That of an abstract socket begins with @.
func SplitListen(s string) (network, address string, err error) {
	if path, ok, err := unixPath(s); ok || err != nil {
		return "unix", path, err
	}
	if scheme, _, ok := strings.Cut(s, "://"); ok {
		return "", "", fmt.Errorf("cannot listen on a %s:// address; write host:port or unix:///path", clip(scheme))
	}
	if _, _, err := hostPort(s, 0); err != nil {
		return "", "", err
	}
	return "tcp", s, nil
}

// checkTarget checks a gRPC target, or what is written in its place, and tells whether what is said to it stays
// on this host, or is secured by the address itself.
func checkTarget(s string) (local bool, err error) {
	if _, ok, err := unixPath(s); ok || err != nil {
		return true, err
	}
	if strings.HasPrefix(s, "files:") {
		return true, checkFilesPath(s)
	}
	if strings.HasPrefix(s, restScheme) {
		return checkRESTURL(s)
	}
	endpoint := s
	if scheme, rest, ok := strings.Cut(s, "://"); ok {
		switch scheme {
		case "dns":
			// dns://resolver/name, mostly with an empty resolver.
			_, name, ok := strings.Cut(rest, "/")
			if !ok {
				return false, fmt.Errorf("%q lacks a slash; write dns:///host:port", clip(s))
			}
			endpoint = name
		case "http", "https":
			return false, fmt.Errorf("%q is a URL; write host:port without %[2]s://, and set tls to secure it; or rest+%[2]s://… if the control plane speaks xDS over REST only", clip(s), scheme)
		default:
			return false, fmt.Errorf("unknown scheme %q; write host:port, dns:///host:port, unix:///path, files:///path or rest+https://host/", clip(scheme))
		}
	}
	host, _, err := hostPort(endpoint, 1)
	if err == nil && host == "" {
		err = fmt.Errorf("%q has no host; write host:port", clip(s))
	}
	return isLoopback(host), err
}

// clashing reports whether the system would refuse to listen on an address and on another one,
// which need not be written in the same way.
func clashing(s string) func(other string) bool {
	split := func(s string) (host, port string) {
		network, address, err := SplitListen(s)
		if err != nil {
			return "", ""
		} else if network == "unix" {
			return network, filepath.Clean(address)
		}
		host, port, _ = net.SplitHostPort(address)
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			host = ""
		}
		return host, port
	}
	host, port := split(s)
	return func(other string) bool {
		h, p := split(other)
		unix := host == "unix" || h == "unix"
		return p == port && port != "" && port != "0" && (h == host || !unix && (h == "" || host == ""))
	}
}

// isLocalListen tells whether only this host can reach a valid address.
func isLocalListen(s string) bool {
	network, address, err := SplitListen(s)
	if err != nil || network == "unix" {
		return err == nil
	}
	host, _, err := net.SplitHostPort(address)
	return err == nil && isLoopback(host)
}

// unixPath is the path in unix:///path or unix:/path, or @NAME of unix-abstract:NAME; ok: s is one of them.
func unixPath(s string) (path string, ok bool, err error) {
	if name, ok := strings.CutPrefix(s, "unix-abstract:"); ok {
		return abstract(s, name)
	}
	rest, ok := strings.CutPrefix(s, "unix:")
	if !ok {
		return "", false, nil
	}
	path = strings.TrimPrefix(rest, "//")
	switch {
	case !strings.HasPrefix(path, "/") || path == "/":
		return "", true, fmt.Errorf("%q is not an absolute socket path; write unix:///path", clip(s))
	case strings.ContainsRune(path, 0):
		return "", true, fmt.Errorf("the socket path contains a zero byte")
	case len(path) > maxUnixPath:
		return "", true, fmt.Errorf("the socket path has %d bytes; the system takes at most %d", len(path), maxUnixPath)
	}
	return path, true, nil
}

// abstract is a socket without a file, which only Linux has. Who is in the same network namespace can connect to
// it, as to loopback.
func abstract(s, name string) (path string, ok bool, err error) {
	switch {
	case runtime.GOOS != "linux":
		return "", true, fmt.Errorf("%q: only Linux has abstract sockets; write unix:///path", clip(s))
	case name == "" || strings.ContainsAny(name, "/?#%\x00"):
		return "", true, fmt.Errorf("%q is not the name of a socket; write unix-abstract:name, without /, ?, # and %%", clip(s))
	case len(name) > maxUnixPath:
		return "", true, fmt.Errorf("the socket's name has %d bytes; the system takes at most %d", len(name), maxUnixPath)
	}
	return "@" + name, true, nil
}

// hostPort splits host:port and checks that the port is a number of at least
// minPort; port 0 makes sense for a listener only.
func hostPort(s string, minPort int) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(s)
	if err != nil {
		switch {
		case s == "":
			return "", 0, fmt.Errorf("is empty; write host:port")
		case strings.Count(s, ":") > 1 && !strings.Contains(s, "["):
			return "", 0, fmt.Errorf("%q is ambiguous; put an IPv6 address in brackets: [::1]:18000", clip(s))
		case !strings.Contains(s, ":"):
			return "", 0, fmt.Errorf("%q has no port; write host:port", clip(s))
		}
		return "", 0, fmt.Errorf("%q is not host:port", clip(s))
	}
	port, err = strconv.Atoi(text)
	if err != nil || port < minPort || port > 65535 {
		return "", 0, fmt.Errorf("port %q of %q is not a number from %d to 65535", clip(text), clip(s), minPort)
	}
	if strings.ContainsAny(host, "/ \t\r\n\x00@?#,") {
		return "", 0, fmt.Errorf("%q is not a host name", clip(host))
	}
	return host, port, nil
}

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
