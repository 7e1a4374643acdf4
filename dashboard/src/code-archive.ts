/** A file of a directory that was chosen in the browser. */
export interface CodeFile {
  /** Path below the directory. */
  readonly path: string;
  readonly content: Blob;
}

/** Names that an archive omits, as the command line does. */
const LEFT_OUT = new Set(['.git', '__pycache__', 'node_modules', '.venv']);
const IGNORE_FILE = '.rookeryignore';
const BLOCK_BYTES = 512;
/** Longest path of a header without an extension. */
const MAX_PATH_BYTES = 100;
const MAX_FILES = 50_000;

/** Packs files as tar.gz, with sorted names and without times. Fails if the files cannot be packed. */
export async function packFiles(files: readonly CodeFile[]): Promise<Uint8Array<ArrayBuffer>> {
  const packed = files.filter(({ path }) => !path.split('/').some(name => LEFT_OUT.has(name)));
  const ignoring = packed.find(({ path }) => path.split('/').at(-1) === IGNORE_FILE);
  if (ignoring !== undefined) {
    throw new Error(
      `The directory has a ${IGNORE_FILE}, which a browser does not apply. Use the command line, or choose a zip.`,
    );
  }
  if (packed.length === 0) throw new Error('The directory has no file to send.');
  if (packed.length > MAX_FILES) throw new Error(`The directory has more than ${MAX_FILES} files.`);
  const parts: BlobPart[] = [];
  for (const { path, content } of packed.toSorted((one, other) => (one.path < other.path ? -1 : 1))) {
    const isProgram = startsProgram(new Uint8Array(await content.slice(0, 4).arrayBuffer()));
    parts.push(...headersOf(path, content.size, isProgram ? 0o755 : 0o644), content, padding(content.size));
  }
  parts.push(new Uint8Array(2 * BLOCK_BYTES));
  const compressed = new Blob(parts).stream().pipeThrough(new CompressionStream('gzip'));
  return new Uint8Array(await new Response(compressed).arrayBuffer());
}

/** A browser hides the mode of a file: programs are recognized by `#!` and the mark of ELF. */
function startsProgram([first, second, third, fourth]: Uint8Array): boolean {
  const isScript = first === 0x23 && second === 0x21;
  return isScript || (first === 0x7f && second === 0x45 && third === 0x4c && fourth === 0x46);
}

function headersOf(path: string, sizeBytes: number, mode: number): readonly Uint8Array<ArrayBuffer>[] {
  const name = new TextEncoder().encode(path);
  if (name.length <= MAX_PATH_BYTES) return [header(name, sizeBytes, mode, '0')];
  const extension = paxPath(path);
  return [
    header(new TextEncoder().encode('path'), extension.length, 0o644, 'x'),
    extension,
    padding(extension.length),
    header(name.slice(0, MAX_PATH_BYTES), sizeBytes, mode, '0'),
  ];
}

/** Returns the extended header for a long path. Its length counts its own digits. */
function paxPath(path: string): Uint8Array<ArrayBuffer> {
  const rest = new TextEncoder().encode(` path=${path}\n`).length;
  let length = rest;
  while (String(length).length + rest !== length) length = String(length).length + rest;
  return new TextEncoder().encode(`${length} path=${path}\n`);
}

function header(name: Uint8Array, sizeBytes: number, mode: number, type: string): Uint8Array<ArrayBuffer> {
  const block = new Uint8Array(BLOCK_BYTES);
  const write = (at: number, text: string) => block.set(new TextEncoder().encode(text), at);
  const octal = (value: number, digits: number) => `${value.toString(8).padStart(digits, '0')}\0`;
  block.set(name);
  write(100, octal(mode, 7));
  write(108, octal(0, 7));
  write(116, octal(0, 7));
  write(124, octal(sizeBytes, 11));
  write(136, octal(0, 11));
  write(148, ' '.repeat(8));
  write(156, type);
  write(257, 'ustar\x0000');
  const checksum = block.reduce((sum, byte) => sum + byte, 0);
  write(148, `${checksum.toString(8).padStart(6, '0')}\0 `);
  return block;
}

function padding(sizeBytes: number): Uint8Array<ArrayBuffer> {
  return new Uint8Array((BLOCK_BYTES - (sizeBytes % BLOCK_BYTES)) % BLOCK_BYTES);
}
