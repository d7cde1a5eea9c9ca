// River adapter: same worker protocol as ../_proto.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

type opts struct {
	N, Chunk, Workers, Pool int
	CooldownMs, PollMs      int
	Rate, Seconds           int
	How                     string
	PollOnly                bool
}

type args struct {
	N int     `json:"n"`
	T float64 `json:"t,omitempty"`
}

func (args) Kind() string { return "bench" }

var (
	count, sum atomic.Int64
	latMu      sync.Mutex
	lat        = []float64{}
)

func now() float64 { return float64(time.Now().UnixNano()) / 1e9 }

type worker struct{ river.WorkerDefaults[args] }

func (worker) Work(_ context.Context, j *river.Job[args]) error {
	count.Add(1)
	sum.Add(int64(j.Args.N))
	if j.Args.T != 0 {
		l := (now() - j.Args.T) * 1e3
		latMu.Lock()
		lat = append(lat, l)
		latMu.Unlock()
	}
	return nil
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func outJSON(v any) { b, _ := json.Marshal(v); fmt.Println(string(b)) }

func or(a, b int) int {
	if a == 0 {
		return b
	}
	return a
}

// oneByOne inserts jobs singly, each beside an effect in the caller's transaction when How is "tx".
func oneByOne(ctx context.Context, o opts, c *river.Client[pgx.Tx], pool *pgxpool.Pool) {
	calls := make([]float64, 0, o.N)
	began := time.Now()
	for i := range o.N {
		t := time.Now()
		if o.How == "tx" {
			tx, err := pool.Begin(ctx)
			must(err)
			_, err = tx.Exec(ctx, "INSERT INTO effect VALUES ($1)", i)
			must(err)
			_, err = c.InsertTx(ctx, tx, args{N: i}, nil)
			must(err)
			must(tx.Commit(ctx))
		} else {
			_, err := c.Insert(ctx, args{N: i}, nil)
			must(err)
		}
		calls = append(calls, time.Since(t).Seconds()*1e3)
	}
	seconds := time.Since(began).Seconds()
	sort.Float64s(calls)
	outJSON(map[string]any{"seconds": seconds, "call_p50_ms": calls[len(calls)/2]})
}

func main() {
	ctx := context.Background()
	action := os.Args[1]
	if action == "version" {
		v := "?"
		if bi, ok := debug.ReadBuildInfo(); ok {
			for _, d := range bi.Deps {
				if d.Path == "github.com/riverqueue/river" {
					v = d.Version
				}
			}
			v += " (" + bi.GoVersion + ")"
		}
		outJSON(map[string]any{"version": v})
		return
	}
	var o opts
	if len(os.Args) > 2 {
		must(json.Unmarshal([]byte(os.Args[2]), &o))
	}
	pc, err := pgxpool.ParseConfig(os.Getenv("DSN"))
	must(err)
	pc.MaxConns = int32(or(o.Pool, 10))
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	must(err)
	must(pool.Ping(ctx))
	drv := riverpgxv5.New(pool)
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	switch action {
	case "setup":
		m, err := rivermigrate.New(drv, &rivermigrate.Config{Logger: log})
		must(err)
		_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
		must(err)
	case "enqueue":
		c, err := river.NewClient(drv, &river.Config{Logger: log})
		must(err)
		if o.How != "bulk" {
			oneByOne(ctx, o, c, pool)
			return
		}
		chunk := or(o.Chunk, 5000)
		t := time.Now()
		for a := 0; a < o.N; a += chunk {
			ps := make([]river.InsertManyParams, 0, chunk)
			for i := a; i < min(o.N, a+chunk); i++ {
				ps = append(ps, river.InsertManyParams{Args: args{N: i}})
			}
			_, err := c.InsertManyFast(ctx, ps)
			must(err)
		}
		outJSON(map[string]any{"seconds": time.Since(t).Seconds()})
	case "work":
		ws := river.NewWorkers()
		river.AddWorker(ws, &worker{})
		c, err := river.NewClient[pgx.Tx](drv, &river.Config{
			Logger: log, Workers: ws, JobTimeout: -1, PollOnly: o.PollOnly,
			FetchCooldown:     time.Duration(or(o.CooldownMs, 100)) * time.Millisecond,
			FetchPollInterval: time.Duration(or(o.PollMs, 1000)) * time.Millisecond,
			Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: or(o.Workers, 1000)}},
		})
		must(err)
		in := bufio.NewScanner(os.Stdin)
		fmt.Println("READY")
		in.Scan()
		must(c.Start(ctx))
		go func() {
			var last int64
			for range time.Tick(5 * time.Millisecond) {
				if n := count.Load(); n != last {
					last = n
					fmt.Printf("P %d\n", n)
				}
			}
		}()
		for in.Scan() && in.Text() != "STOP" {
		}
		must(c.Stop(ctx))
		outJSON(map[string]any{"handled": count.Load(), "sum": sum.Load(), "lat_ms": lat})
	case "produce":
		// The inserting client throttles its NOTIFY by its own FetchCooldown (100 ms by default).
		c, err := river.NewClient(drv, &river.Config{Logger: log, FetchCooldown: time.Duration(or(o.CooldownMs, 100)) * time.Millisecond})
		must(err)
		var calls []float64
		late := 0.0
		t0 := time.Now()
		for i := range o.Rate * o.Seconds {
			d := time.Until(t0.Add(time.Duration(i) * time.Second / time.Duration(o.Rate)))
			if d > 0 {
				time.Sleep(d)
			} else {
				late = max(late, -d.Seconds()*1e3)
			}
			t := now()
			_, err := c.Insert(ctx, args{N: i, T: t}, nil)
			must(err)
			calls = append(calls, (now()-t)*1e3)
		}
		sort.Float64s(calls)
		outJSON(map[string]any{"sent": len(calls), "call_p50_ms": calls[len(calls)/2], "late_max_ms": late})
	}
}
