/**
 * Yields the elements of a JSON array in batches while it arrives. The page can draw between two batches
 * of a long list. Fails with a `SyntaxError` if the body is not such an array.
 */
export async function* elementsOf<T>(body: ReadableStream<Uint8Array<ArrayBuffer>>): AsyncGenerator<readonly T[]> {
  const splitter = new ArraySplitter();
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
    for (let at = 0; at < chunk.value.length; at += PIECE_CHARS) {
      const found = splitter.add(chunk.value.slice(at, at + PIECE_CHARS));
      if (found !== '') yield JSON.parse(`[${found}]`) as T[];
      // Lets the browser draw before the next piece.
      await nextTask();
    }
  }
  if (!splitter.isOver) throw new SyntaxError('the list ends before its end');
}

/** Characters of a piece, about a millisecond of work. */
const PIECE_CHARS = 64 * 1024;

function nextTask(): Promise<void> {
  return new Promise(resolve => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}

const OPEN = '['.charCodeAt(0);
const CLOSE = ']'.charCodeAt(0);
const QUOTE = '"'.charCodeAt(0);
const BACKSLASH = '\\'.charCodeAt(0);
const OPEN_OBJECT = '{'.charCodeAt(0);
const CLOSE_OBJECT = '}'.charCodeAt(0);

/** Splits the text of an array of objects after its last complete object. */
class ArraySplitter {
  isOver = false;
  #rest = '';
  #depth = 0;
  #isInText = false;
  #isEscaped = false;

  /** Returns the objects that `piece` completes, with commas between them, or `''`. */
  add(piece: string): string {
    const text = this.#rest + piece;
    let end = 0;
    for (let at = this.#rest.length; at < text.length; at++) {
      const code = text.charCodeAt(at);
      if (this.#isEscaped) this.#isEscaped = false;
      else if (this.#isInText) {
        if (code === BACKSLASH) this.#isEscaped = true;
        else if (code === QUOTE) this.#isInText = false;
      } else if (code === QUOTE) this.#isInText = true;
      else if (code === OPEN || code === OPEN_OBJECT) this.#depth += 1;
      else if (code === CLOSE || code === CLOSE_OBJECT) {
        this.#depth -= 1;
        if (this.#depth === 1) end = at + 1;
        else if (this.#depth === 0) this.isOver = true;
      }
    }
    if (end === 0) {
      this.#rest = text;
      return '';
    }
    // Skips the opening bracket, or the comma after the previous object.
    const begin = text.indexOf('{');
    this.#rest = text.slice(end);
    return text.slice(begin, end);
  }
}
