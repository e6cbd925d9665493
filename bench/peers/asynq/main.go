// The asynq producer and worker of the bench: one order in, one line of JSON out.
// asynq has no bulk call; its client is safe for concurrent use, so the producer enqueues from many goroutines.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
)

type order struct {
	Task        string            `json:"task"`
	Port        int               `json:"port"`
	Jobs        int               `json:"jobs"`
	Concurrency int               `json:"concurrency"`
	Fields      map[string]string `json:"fields"`
	Start       float64           `json:"start"`
	Gap         float64           `json:"gap"`
}

type payload struct {
	Fields map[string]string `json:"fields"`
	Due    float64           `json:"due,omitempty"`
}

func answer(figures map[string]any) {
	line, err := json.Marshal(figures)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(line))
}

func put(o order, redis asynq.RedisClientOpt) {
	client := asynq.NewClient(redis)
	defer client.Close()
	var next atomic.Int64
	var group sync.WaitGroup
	started := time.Now()
	for range o.Concurrency {
		group.Add(1)
		go func() {
			defer group.Done()
			for {
				n := int(next.Add(1)) - 1
				if n >= o.Jobs {
					return
				}
				job := payload{Fields: o.Fields}
				var options []asynq.Option
				if o.Task == "schedule" {
					job.Due = o.Start + float64(n)*o.Gap
					options = append(options, asynq.ProcessAt(time.UnixMicro(int64(job.Due*1e6))))
				}
				data, err := json.Marshal(job)
				if err != nil {
					log.Fatal(err)
				}
				if _, err := client.Enqueue(asynq.NewTask("noop", data), options...); err != nil {
					log.Fatal(err)
				}
			}
		}()
	}
	group.Wait()
	answer(map[string]any{"seconds": time.Since(started).Seconds()})
}

func cpuSeconds() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		log.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
}

func work(o order, redis asynq.RedisClientOpt) {
	var lock sync.Mutex
	var late []float64
	var ran int
	var firstAt time.Time
	var firstCPU float64
	server := asynq.NewServer(redis, asynq.Config{Concurrency: o.Concurrency, LogLevel: asynq.ErrorLevel})
	mux := asynq.NewServeMux()
	mux.HandleFunc("noop", func(_ context.Context, task *asynq.Task) error {
		var job payload
		if err := json.Unmarshal(task.Payload(), &job); err != nil {
			return err
		}
		now := time.Now()
		lock.Lock()
		defer lock.Unlock()
		if job.Due > 0 {
			late = append(late, float64(now.UnixMicro())/1e6-job.Due)
		}
		ran++
		if ran == 1 {
			firstCPU = cpuSeconds()
			firstAt = now
		}
		if ran == o.Jobs {
			if o.Task == "lateness" {
				answer(map[string]any{"lateness": late})
			} else {
				answer(map[string]any{"seconds": now.Sub(firstAt).Seconds(), "cpu_seconds": cpuSeconds() - firstCPU})
			}
		}
		return nil
	})
	if err := server.Run(mux); err != nil {
		log.Fatal(err)
	}
}

func main() {
	var o order
	if err := json.Unmarshal([]byte(os.Args[1]), &o); err != nil {
		log.Fatal(err)
	}
	redis := asynq.RedisClientOpt{Addr: fmt.Sprintf("127.0.0.1:%d", o.Port)}
	if o.Task == "enqueue" || o.Task == "schedule" {
		put(o, redis)
	} else {
		work(o, redis)
	}
}
