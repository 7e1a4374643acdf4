import { useEffect, useRef, useState } from 'preact/hooks';
import { ask, messageOf } from './api.ts';
import { onEvents, untilSilent } from './live.ts';
import { LogLines } from './log-lines.ts';
import { counted, Failure, Input } from './parts.tsx';

/** Collects text and shows its lines at most once per frame. */
function collect(show: (lines: readonly string[]) => void) {
  const lines = new LogLines();
  let frame = 0;
  return {
    add(text: string) {
      lines.add(text);
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        show(lines.all);
      });
    },
    end: () => cancelAnimationFrame(frame),
  };
}

/**
 * Follows a log over HTTP (`path`) or a WebSocket (`socket`) and keeps the newest lines. Reads an ended log
 * again when the service returns.
 */
export function LogFollower({
  path,
  socket,
  label,
}: {
  readonly path?: string;
  readonly socket?: string;
  readonly label: string;
}) {
  const [lines, setLines] = useState<readonly string[]>([]);
  const [search, setSearch] = useState('');
  const [state, setState] = useState('connecting');
  const [error, setError] = useState('');
  const [follows, setFollows] = useState(true);
  const box = useRef<HTMLElement>(null);
  const [turn, setTurn] = useState(0);
  const hasEnded = useRef(false);
  useEffect(
    () =>
      onEvents(event => {
        if (event === null && hasEnded.current) setTurn(before => before + 1);
      }),
    [],
  );
  // A change of `turn` reads the log again.
  useEffect(() => {
    hasEnded.current = false;
    const end = () => {
      hasEnded.current = true;
      setState('ended');
    };
    setState('connecting');
    const collected = collect(setLines);
    const controller = new AbortController();
    const ends = untilSilent(controller.signal);
    ends.addEventListener('abort', () => {
      if (!controller.signal.aborted) end();
    });
    setLines([]);
    setError('');
    if (socket !== undefined) {
      const connection = new WebSocket(socket);
      connection.onopen = () => setState('following');
      connection.onmessage = ({ data }) => collected.add(String(data));
      connection.onclose = () => {
        if (!controller.signal.aborted) end();
      };
      ends.addEventListener('abort', () => connection.close());
    } else if (path !== undefined) {
      void (async () => {
        try {
          const { body } = await ask(path, { signal: ends });
          setState('following');
          const reader = body?.pipeThrough(new TextDecoderStream()).getReader();
          for (let chunk = await reader?.read(); chunk && !chunk.done; chunk = await reader?.read())
            collected.add(chunk.value);
          end();
        } catch (problem) {
          if (controller.signal.aborted) return;
          end();
          setError(messageOf(problem));
        }
      })();
    }
    return () => {
      controller.abort();
      collected.end();
    };
  }, [path, socket, turn]);
  const shown = search === '' ? lines : lines.filter(line => line.toLowerCase().includes(search.toLowerCase()));
  // Scrolls when lines are added.
  useEffect(() => {
    if (follows && box.current !== null) box.current.scrollTop = box.current.scrollHeight;
  }, [shown.length, follows]);
  return (
    <>
      <div class="filters">
        <Input label="Search" value={search} onInput={setSearch} type="search" />
        <label class="check">
          <input type="checkbox" checked={follows} onChange={event => setFollows(event.currentTarget.checked)} />
          Stay at the end
        </label>
        <span class="count" role="status">
          {state}, {search === '' ? counted(lines.length, 'line') : `${shown.length} of ${lines.length} lines`}
        </span>
      </div>
      <Failure text={error} />
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region must be reachable by keyboard */}
      <section class="text log" aria-label={label} tabIndex={0} ref={box}>
        <pre>{shown.join('\n')}</pre>
      </section>
    </>
  );
}
