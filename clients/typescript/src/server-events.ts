/** An event of a stream, as defined by the HTML standard (§9.2). */
export interface ServerEvent {
  /** `message` unless the stream names another. */
  readonly type: string;
  /** The lines of the event, joined by newlines. */
  readonly data: string;
  /** The newest id that the stream has named; `''`: none. */
  readonly id: string;
}

/** The longest line that is accepted. */
const MAX_LINE_CHARS = 64 * 1024 * 1024;

/** Yields the events of a `text/event-stream`. Ignores an event that is cut off at the end. */
export async function* serverEvents(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<ServerEvent> {
  const decoder = new TextDecoder();
  let rest = '';
  let type = '';
  let id = '';
  let data: string[] = [];
  for await (const chunk of chunks) {
    rest += decoder.decode(chunk, { stream: true });
    if (rest.length > MAX_LINE_CHARS) throw new RangeError('a line of the stream is too long');
    const lines = rest.split('\n');
    rest = lines.pop() ?? '';
    for (const sent of lines) {
      const line = sent.endsWith('\r') ? sent.slice(0, -1) : sent;
      if (line === '') {
        if (data.length > 0) yield { type: type || 'message', data: data.join('\n'), id };
        type = '';
        data = [];
      } else if (line.startsWith('data:')) data.push(valueAfter(line, 'data:'));
      else if (line.startsWith('event:')) type = valueAfter(line, 'event:');
      else if (line.startsWith('id:')) id = valueAfter(line, 'id:');
    }
  }
}

function valueAfter(line: string, field: string): string {
  const value = line.slice(field.length);
  return value.startsWith(' ') ? value.slice(1) : value;
}
