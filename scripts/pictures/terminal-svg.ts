import type { Recording } from './terminal-recording.ts';

const COLUMNS = 88;
const CHARACTER = 8;
const LINE = 20;
const MARGIN = 20;
const BAR = 34;
const PROMPT = '$ ';
/** Typing speed in the picture, in milliseconds per character. Times of output are those of the recording. */
const TYPE_MS = 22;
const PAUSE_MS = 500;

/** Returns the recording as an SVG that plays once. A viewer without animation shows the last frame. */
export function terminalSvg({ steps }: Recording): string {
  const rows: string[] = [];
  let row = 0;
  let atMs = 600;
  const y = () => BAR + MARGIN + row * LINE;
  for (const { command, lines } of steps) {
    const typingMs = command.length * TYPE_MS;
    rows.push(
      `<g class="row" style="animation-delay:${atMs}ms">${text('prompt', MARGIN, y(), PROMPT.trim())}</g>`,
      text('command', MARGIN + PROMPT.length * CHARACTER, y(), command),
      `<rect class="cover" x="${MARGIN + PROMPT.length * CHARACTER}" y="${y() - LINE + 5}" width="${COLUMNS * CHARACTER}" height="${LINE}" style="--to:${command.length * CHARACTER}px;animation-duration:${typingMs}ms;animation-timing-function:steps(${command.length},end);animation-delay:${atMs}ms"/>`,
    );
    row += 1;
    atMs += typingMs;
    for (const { afterMs, text: line } of lines) {
      for (const piece of wrapped(line)) {
        rows.push(
          `<g class="row" style="animation-delay:${atMs + afterMs}ms">${text('output', MARGIN, y(), piece)}</g>`,
        );
        row += 1;
      }
    }
    atMs += (lines.at(-1)?.afterMs ?? 0) + PAUSE_MS;
  }
  const width = COLUMNS * CHARACTER + 2 * MARGIN;
  const height = y() + MARGIN - LINE + 8;
  return `<!-- Made by \`npm run pictures\` from docs/pictures/terminal.json: typing is drawn, the times of the output are those of a real run. -->
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-labelledby="title">
<title id="title">A terminal: the service starts, an agent is created and called twice, the service is killed and started again, and the agent counts on.</title>
<style>
text{font:13.3px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre}
.prompt{fill:#6fd49a}.command{fill:#fff}.output{fill:#b7bfce}
.cover{fill:#111319;transform:translateX(200%);animation:type both}
.row{animation:show 1ms backwards}
@keyframes show{from{opacity:0}}
@keyframes type{from{transform:translateX(0)}to{transform:translateX(var(--to))}}
@media (prefers-reduced-motion:reduce){.row,.cover{animation:none}}
</style>
<clipPath id="window"><rect width="${width}" height="${height}" rx="10"/></clipPath>
<g clip-path="url(#window)">
<rect width="${width}" height="${height}" fill="#111319"/>
<rect width="${width}" height="${BAR}" fill="#232834"/>
<circle cx="20" cy="17" r="6" fill="#ff8f86"/><circle cx="40" cy="17" r="6" fill="#eab75c"/><circle cx="60" cy="17" r="6" fill="#6fd49a"/>
${rows.join('\n')}
</g>
</svg>
`;
}

function wrapped(line: string): readonly string[] {
  return line.match(new RegExp(`.{1,${COLUMNS}}`, 'gu')) ?? [''];
}

/** Returns a text element in which each character has the width of a cell, in any font. */
function text(kind: string, x: number, y: number, content: string): string {
  const escaped = content.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
  return `<text class="${kind}" x="${x}" y="${y}" textLength="${content.length * CHARACTER}" lengthAdjust="spacingAndGlyphs">${escaped}</text>`;
}
