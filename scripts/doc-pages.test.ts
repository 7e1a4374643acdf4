import { expect, test } from 'vitest';
import { renderPage } from './doc-pages.ts';

test('renderPage gives headings the anchors that GitHub gives them', () => {
  expect(renderPage('# Tenants → `a` & b\n\n## Networks\n\n## Networks\n', 'a.md')).toMatch(
    /<h1 id="tenants--a--b">[\s\S]*<h2 id="networks">[\s\S]*<h2 id="networks-1">/,
  );
});

test('renderPage links to rendered pages and leaves other links unchanged', () => {
  const html = renderPage('[a](../b.md#c) [d](https://example.com/e.md) [f](#g)', 'guides/a.md');
  expect(html).toContain('<a href="../b.html#c">a</a>');
  expect(html).toContain('<a href="https://example.com/e.md">d</a>');
  expect(html).toContain('<a href="#g">f</a>');
  expect(html).toContain('href="../style.css"');
  expect(renderPage('[h](../../bench/README.md)', 'guides/a.md')).toContain('<p>h</p>');
});

test('renderPage keeps a picture element', () => {
  const picture = '<picture>\n  <source media="(x)" srcset="a.png">\n  <img src="b.png" alt="c">\n</picture>';
  expect(renderPage(`a\n\n${picture}\n\nb`, 'a.md')).toContain(picture);
  expect(renderPage('<picture><script></picture>', 'a.md')).not.toContain('<script>');
});

test('renderPage shows HTML in a page as text', () => {
  expect(renderPage('a <script>alert(1)</script>', 'a.md')).not.toContain('<script>');
});
