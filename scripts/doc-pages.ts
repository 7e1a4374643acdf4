import { copyFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, posix } from 'node:path';
import { Marked } from 'marked';

/** Characters of a heading that its anchor does not contain, as on GitHub. */
const NOT_IN_ANCHOR = /[^\p{L}\p{N}\s_-]/gu;
/** HTML that a page may contain: a picture for each colour scheme. */
const PICTURE = /^(\s|<\/?picture>|<(source|img) [^<>]*>)+$/;
const TAGS = /<[^>]*>/g;
const ENTITIES: Readonly<Record<string, string>> = {
  '&amp;': '&',
  '&lt;': '<',
  '&gt;': '>',
  '&quot;': '"',
  '&#39;': "'",
};

/**
 * Renders every Markdown page below `source` to HTML below `target`, and copies pictures.
 * Links lead to the rendered pages, and headings have anchors.
 */
export function renderDocs(source: string, target: string): void {
  for (const name of readdirSync(source, { recursive: true, encoding: 'utf8' })) {
    if (!/\.(md|png|svg)$/.test(name)) continue;
    const file = join(target, name.replace(/\.md$/, '.html'));
    mkdirSync(dirname(file), { recursive: true });
    if (!name.endsWith('.md')) {
      copyFileSync(join(source, name), file);
      continue;
    }
    writeFileSync(file, renderPage(readFileSync(join(source, name), 'utf8'), name));
  }
  writeFileSync(join(target, 'style.css'), STYLE);
}

/** Returns the anchors of the headings of a page. */
export function anchorsOf(markdown: string): ReadonlySet<string> {
  return new Set([...renderPage(markdown, '').matchAll(/<h\d id="([^"]*)">/g)].map(([, anchor = '']) => anchor));
}

/** Returns the HTML of a page. `name` is its path below `docs/`. */
export function renderPage(markdown: string, name: string): string {
  const used = new Map<string, number>();
  const root = '../'.repeat(name.split('/').length - 1);
  const marked = new Marked({
    renderer: {
      heading({ tokens, depth }) {
        const html = this.parser.parseInline(tokens);
        const anchor = anchorOf(html, used);
        return `<h${depth} id="${anchor}">${html}</h${depth}>\n`;
      },
      link({ href, tokens }) {
        const html = this.parser.parseInline(tokens);
        const target = targetOf(href, name);
        return target === null ? html : `<a href="${escapeHtml(target)}">${html}</a>`;
      },
      html({ text }) {
        return text.startsWith('<!--') || text === '<br>' || PICTURE.test(text) ? text : escapeHtml(text);
      },
    },
  });
  const title = /^# (.+)$/m.exec(markdown)?.[1] ?? name;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${escapeHtml(title.replaceAll('`', ''))} · Rookery</title>
<link rel="stylesheet" href="${root}style.css">
</head>
<body>
<nav><a href="${root}README.html">Documents</a> · <a href="/">Dashboard</a></nav>
<main>
${marked.parse(markdown, { async: false })}</main>
</body>
</html>
`;
}

/** Returns the target of a link on a rendered page, or null for a file that is not rendered. */
function targetOf(href: string, name: string): string | null {
  if (/^([a-z]+:|#)/.test(href)) return href;
  const [path = '', anchor] = href.split('#');
  const isPage = path.endsWith('.md') && !posix.join(posix.dirname(name), path).startsWith('../');
  if (!isPage) return null;
  return path.replace(/\.md$/, '.html') + (anchor === undefined ? '' : `#${anchor}`);
}

function anchorOf(html: string, used: Map<string, number>): string {
  const text = html.replace(TAGS, '').replace(/&(amp|lt|gt|quot|#39);/g, entity => ENTITIES[entity] ?? '');
  const anchor = text.toLowerCase().replace(NOT_IN_ANCHOR, '').trim().replace(/\s/g, '-');
  const count = used.get(anchor) ?? 0;
  used.set(anchor, count + 1);
  return count === 0 ? anchor : `${anchor}-${count}`;
}

function escapeHtml(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
}

const STYLE = `:root { color-scheme: light dark; font: 16px/1.55 system-ui, sans-serif; }
body { margin: 0 auto; max-width: 60rem; padding: 1rem; }
pre, table { overflow-x: auto; display: block; }
pre { padding: .75rem; background: color-mix(in srgb, currentColor 8%, transparent); }
code { font: .9em ui-monospace, monospace; }
table { border-collapse: collapse; }
img { height: auto; max-width: 100%; }
td, th { border: 1px solid color-mix(in srgb, currentColor 25%, transparent); padding: .3rem .6rem; text-align: left; vertical-align: top; }
`;
