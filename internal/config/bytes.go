package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is a size, written as 64MiB or as a plain number of bytes.
type Bytes int64

// The units of Bytes. There are no decimal ones: a limit of 64MB that is not
// 64MiB has never helped anybody.
const (
	KiB Bytes = 1 << (10 * (iota + 1))
	MiB
	GiB
	TiB
)

// units is ordered from the largest, so that String finds the shortest form.
var units = []struct {
	suffix string
	size   Bytes
}{{"TiB", TiB}, {"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}, {"B", 1}}

// ParseBytes reads a size such as 4KiB, 64MiB, 2GiB or 4096.
func ParseBytes(s string) (Bytes, error) {
	text, unit := strings.TrimSpace(s), Bytes(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(text, u.suffix); ok {
			text, unit = strings.TrimSpace(rest), u.size
			break
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("wants a size such as 64MiB (units: B, KiB, MiB, GiB, TiB), found %q", clip(s))
	}
	if n > math.MaxInt64/int64(unit) || n < math.MinInt64/int64(unit) {
		return 0, fmt.Errorf("size %q is too large", clip(s))
	}
	return Bytes(n) * unit, nil
}

// String returns the shortest form that [ParseBytes] reads back to b.
func (b Bytes) String() string {
	if b == 0 {
		return "0B"
	}
	for _, u := range units {
		if b%u.size == 0 {
			return strconv.FormatInt(int64(b/u.size), 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(b), 10) + "B"
}

// MarshalYAML writes the size with its unit.
func (b Bytes) MarshalYAML() (any, error) { return b.String(), nil }

// UnmarshalYAML reads what MarshalYAML writes. [Parse] does not use it, since
// an unmarshaler is not told where in the file it is; it is for other readers
// of printed configurations.
func (b *Bytes) UnmarshalYAML(unmarshal func(any) error) error {
	var s string // also takes a plain number
	if err := unmarshal(&s); err != nil {
		return err
	}
	v, err := ParseBytes(s)
	if err != nil {
		return err
	}
	*b = v
	return nil
}
