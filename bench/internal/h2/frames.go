//go:build linux

package h2

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// other takes in a frame that is not DATA.
func (c *Conn) other(b []byte) error {
	switch f := c.frame; f.Type {
	case http2.FrameSettings:
		return c.settings(b)
	case http2.FramePing:
		if !f.Flags.Has(http2.FlagPingAck) && len(b) == 8 {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.out = appendHeader(c.out, 8, http2.FramePing, http2.FlagPingAck, 0)
			c.out = append(c.out, b...)
		}
	case http2.FrameWindowUpdate:
		return c.windowUpdate(b)
	case http2.FrameHeaders:
		if f.Flags.Has(http2.FlagHeadersPadded) || f.Flags.Has(http2.FlagHeadersPriority) {
			return errors.New("h2: padded headers and priorities are not supported")
		}
		c.block = append(c.block[:0], b...)
		return c.headersEnd(f)
	case http2.FrameContinuation:
		c.block = append(c.block, b...)
		return c.headersEnd(f)
	case http2.FrameRSTStream:
		if len(b) == 4 {
			c.close(f.StreamID, fmt.Errorf("h2: the server has reset the stream: %v", http2.ErrCode(binary.BigEndian.Uint32(b))))
		}
	case http2.FrameGoAway:
		if len(b) >= 8 && http2.ErrCode(binary.BigEndian.Uint32(b[4:])) != http2.ErrCodeNo {
			return fmt.Errorf("h2: the server has closed the connection: %v %s", http2.ErrCode(binary.BigEndian.Uint32(b[4:])), b[8:])
		}
	}
	return nil
}

func (c *Conn) settings(b []byte) error {
	if c.frame.Flags.Has(http2.FlagSettingsAck) {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for ; len(b) >= 6; b = b[6:] {
		if http2.SettingID(binary.BigEndian.Uint16(b)) == http2.SettingInitialWindowSize {
			size := int(binary.BigEndian.Uint32(b[2:]))
			for _, s := range c.streams {
				s.window += size - c.initial
			}
			c.initial = size
		}
	}
	c.out = appendHeader(c.out, 0, http2.FrameSettings, http2.FlagSettingsAck, 0)
	c.pumpAll()
	return nil
}

func (c *Conn) windowUpdate(b []byte) error {
	if len(b) != 4 {
		return errors.New("h2: a WINDOW_UPDATE that is not 4 bytes long")
	}
	n := int(binary.BigEndian.Uint32(b) & (1<<31 - 1))
	s := c.stream(c.frame.StreamID)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.frame.StreamID == 0:
		c.window += n
		c.pumpAll()
	case s != nil:
		s.window += n
		s.pump()
	}
	return nil
}

// pumpAll sends what has waited for the connection's window.
func (c *Conn) pumpAll() {
	for _, s := range c.streams {
		if len(s.queue) > 0 {
			s.pump()
		}
	}
}

// headersEnd looks at headers once they are whole. Those that end the stream say
// why.
func (c *Conn) headersEnd(f http2.FrameHeader) error {
	if f.Type == http2.FrameHeaders && f.Flags.Has(http2.FlagHeadersEndStream) {
		s := c.stream(f.StreamID)
		if s == nil {
			return fmt.Errorf("h2: headers of stream %d, which was never opened", f.StreamID)
		}
		s.prefixHas = 0
		defer c.close(f.StreamID, trailerError(c.block))
	}
	return nil
}

func trailerError(block []byte) error {
	fields, err := hpack.NewDecoder(4<<10, nil).DecodeFull(block)
	if err != nil {
		return fmt.Errorf("h2: the server has ended the stream, and its reason cannot be read: %w", err)
	}
	status, message := "no grpc-status", ""
	for _, f := range fields {
		switch f.Name {
		case ":status":
			if f.Value != "200" {
				message = "HTTP status " + f.Value
			}
		case "grpc-status":
			status = "grpc-status " + f.Value
		case "grpc-message":
			message = f.Value
		}
	}
	return fmt.Errorf("h2: the server has ended the stream: %s: %s", status, message)
}

func (c *Conn) close(id uint32, err error) {
	if s := c.stream(id); s != nil && !s.ended {
		s.ended = true
		s.receiver.Closed(err)
	}
}

// blocks are the request headers of each scheme and method, the same for all
// connections.
var blocks sync.Map

func headers(scheme, method string) []byte {
	if b, ok := blocks.Load(scheme + method); ok {
		return b.([]byte)
	}
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	e.SetMaxDynamicTableSize(0) // each block stands for itself
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", scheme}, {":path", method}, {":authority", "bench"},
		{"content-type", "application/grpc"}, {"user-agent", "xds-relay-bench"}, {"te", "trailers"},
	} {
		if err := e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			panic(err) // a bytes.Buffer takes everything
		}
	}
	blocks.Store(scheme+method, b.Bytes())
	return b.Bytes()
}

func appendHeader(b []byte, size int, t http2.FrameType, flags http2.Flags, stream uint32) []byte {
	b = append(b, byte(size>>16), byte(size>>8), byte(size), byte(t), byte(flags))
	return binary.BigEndian.AppendUint32(b, stream)
}

func appendSetting(b []byte, id http2.SettingID, value uint32) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(id))
	return binary.BigEndian.AppendUint32(b, value)
}

func appendWindowUpdate(b []byte, stream uint32, n int) []byte {
	b = appendHeader(b, 4, http2.FrameWindowUpdate, 0, stream)
	return binary.BigEndian.AppendUint32(b, uint32(n))
}
