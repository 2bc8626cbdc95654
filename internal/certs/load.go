package certs

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"strings"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
)

// Hop is the side of the relay that a certificate is for.
type Hop string

// The hops.
const (
	Upstream   Hop = "upstream"   // towards a control plane
	Downstream Hop = "downstream" // towards clients
)

// Files are those of one TLS section of the configuration, or the agent that stands for
// them. Cert and Key come together or not at all, and CA may be empty.
type Files struct {
	Section string // such as "upstream.tls"
	Hop     Hop
	Address string // of the control plane; empty downstream

	Cert, Key, CA string

	// Agent is the socket of a SPIFFE Workload API, unix:///path, from which all of it
	// comes instead; empty: there is none. Then TrustDomains are those of the peers.
	Agent        string
	TrustDomains []string
}

// Equal reports whether they are the same.
func (f Files) Equal(other Files) bool { return reflect.DeepEqual(f, other) }

// CertKey, KeyKey and CAKey are the keys of the configuration that name the files, or the
// agent.
func (f Files) CertKey() string {
	if f.Agent != "" {
		return f.Section + ".spiffe.workload_api"
	}
	return f.Section + ".cert"
}

// KeyKey is that of the private key.
func (f Files) KeyKey() string { return f.Section + ".key" }

// CAKey is that of the authorities by which the peer is judged.
func (f Files) CAKey() string {
	switch {
	case f.Agent != "":
		return f.Section + ".spiffe.trust_domains"
	case f.Hop == Downstream:
		return f.Section + ".client_ca"
	}
	return f.Section + ".ca"
}

// Material is what the files held at one time, or the agent sent. It does not change once it
// is made.
type Material struct {
	// Pair is the certificate with its chain and key; nil: there is none.
	Pair *tls.Certificate
	// Chain is the certificate, and then what follows it in its file.
	Chain []*x509.Certificate
	// Pool are the authorities by which the peer is judged, and Authorities the same as a
	// list; nil: the section names none.
	Pool        *x509.CertPool
	Authorities []*x509.Certificate
	// Domains are the authorities by trust domain, where an agent sent them; nil: they are
	// from a file. A peer that Pool accepts is to be judged by VerifySVID then.
	Domains *x509bundle.Set

	sum [sha256.Size]byte // of all that was read
}

// Leaf is the certificate itself, without what follows it; nil: there is none.
func (m *Material) Leaf() *x509.Certificate {
	if len(m.Chain) == 0 {
		return nil
	}
	return m.Chain[0]
}

// Problem is one thing that is wrong with a file.
type Problem string

// What makes files unusable.
const (
	Unreadable Problem = "unreadable"
	NotPEM     Problem = "not_pem"
	Malformed  Problem = "malformed"
	WrongKey   Problem = "wrong_key" // of another certificate
	BadKey     Problem = "bad_key"   // it is encrypted, or of an unknown kind
)

// Fault says what is wrong with one file, in one line, and what to do about it.
type Fault struct {
	Key       string // of the configuration, such as "upstream.tls.cert"
	Problem   Problem
	Msg, Hint string // Hint may be empty
	Cause     error  // of the operating system, or nil
}

// Error implements error.
func (f *Fault) Error() string {
	text := f.Key + ": " + f.Msg
	if f.Hint != "" {
		text += "; " + f.Hint
	}
	return text
}

// Unwrap is the error of the operating system, if there was one.
func (f *Fault) Unwrap() error { return f.Cause }

// Load reads the files; of an agent there is nothing to read. What makes them unusable comes as an error of *Fault, or several
// joined, which Faults lists. Expiry makes nothing unusable; see Inspect.
func Load(f Files) (*Material, error) {
	m, sum := &Material{}, sha256.New()
	var faults []error
	fault := func(err error) { faults = append(faults, err) }
	read := func(key, path string) ([]byte, bool) {
		if path == "" {
			return nil, false
		}
		data, err := readFile(path)
		fmt.Fprintf(sum, "%s %d %v\n", key, len(data), err)
		sum.Write(data)
		if err != nil {
			fault(&Fault{key, Unreadable, fmt.Sprintf("cannot read %q: %s", clip(path), reason(err)), "check the path and the permissions", err})
		}
		return data, err == nil
	}
	if data, ok := read(f.CAKey(), f.CA); ok {
		list, err := certificates(f.CAKey(), f.CA, data)
		if err != nil {
			fault(err)
		} else {
			m.Pool, m.Authorities = x509.NewCertPool(), list
			for _, c := range list {
				m.Pool.AddCert(c)
			}
		}
	}
	cert, okCert := read(f.CertKey(), f.Cert)
	key, okKey := read(f.KeyKey(), f.Key)
	if okCert {
		var err error
		if m.Chain, err = certificates(f.CertKey(), f.Cert, cert); err != nil {
			fault(err)
			okCert = false
		}
	}
	if okCert && okKey {
		pair, err := keyPair(f, cert, key)
		if err != nil {
			fault(err)
		}
		m.Pair = pair
	}
	sum.Sum(m.sum[:0])
	return m, errors.Join(faults...)
}

// Faults are those that an error of Load consists of.
func Faults(err error) (faults []*Fault) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			faults = append(faults, Faults(e)...)
		}
		return faults
	}
	var f *Fault
	if errors.As(err, &f) {
		faults = append(faults, f)
	}
	return faults
}

// certificates parses all there are. The standard library's pool skips what it cannot
// parse, and would then trust less than the file says.
func certificates(key, path string, data []byte) (list []*x509.Certificate, err error) {
	blocks := 0
	for rest := data; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		blocks++
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, &Fault{Key: key, Problem: Malformed, Msg: fmt.Sprintf("certificate %d in %q: %v", len(list)+1, clip(path), err)}
		}
		list = append(list, c)
	}
	switch {
	case blocks < bytes.Count(data, []byte("-----BEGIN ")):
		return nil, &Fault{Key: key, Problem: Malformed, Msg: fmt.Sprintf("%q has a block that begins and does not end as PEM does", clip(path)), Hint: "it may be cut off"}
	case len(list) == 0:
		return nil, &Fault{Key: key, Problem: NotPEM, Msg: fmt.Sprintf("%q has no certificate in PEM form", clip(path)), Hint: "it should contain -----BEGIN CERTIFICATE-----"}
	}
	return list, nil
}

// keyPair puts a certificate and its key together.
func keyPair(f Files, cert, key []byte) (*tls.Certificate, error) {
	block, _ := pem.Decode(key)
	switch {
	case block == nil:
		return nil, &Fault{Key: f.KeyKey(), Problem: NotPEM, Msg: fmt.Sprintf("%q has no private key in PEM form", clip(f.Key)), Hint: "it should contain -----BEGIN PRIVATE KEY-----"}
	case strings.HasPrefix(block.Type, "ENCRYPTED") || block.Headers["DEK-Info"] != "":
		return nil, &Fault{Key: f.KeyKey(), Problem: BadKey, Msg: fmt.Sprintf("the private key in %q is encrypted", clip(f.Key)), Hint: "use one without a passphrase, in a file that only the relay may read"}
	}
	pair, err := tls.X509KeyPair(cert, key)
	switch {
	case err == nil:
		return &pair, nil
	case strings.Contains(err.Error(), "does not match"):
		return nil, &Fault{Key: f.KeyKey(), Problem: WrongKey, Msg: fmt.Sprintf("%q is not the key of %s: %v", clip(f.Key), f.CertKey(), err), Hint: "check that both come from the same request"}
	default:
		return nil, &Fault{Key: f.KeyKey(), Problem: BadKey, Msg: fmt.Sprintf("%q: %v", clip(f.Key), err), Hint: "check that it is the unencrypted key of " + f.CertKey()}
	}
}

// maxFile is far above any bundle of certificates, in bytes.
const maxFile = 1 << 20

// readFile reads a regular file: opening a pipe could block for ever.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a file")
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() // opened for reading: nothing is lost
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = errors.New("more than 1 MiB")
	}
	return data, err
}

// reason drops the operation and the path, which the message already has.
func reason(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

// clip shortens a path for a message.
func clip(s string) string {
	const limit = 80
	if r := []rune(s); len(r) > limit {
		return string(r[:limit]) + "…"
	}
	return s
}
