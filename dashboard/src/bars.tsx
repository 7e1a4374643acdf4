/** A bar of a bar chart. `from` and `length` are fractions of the width, 0 to 1. */
export interface Bar {
  readonly name: string;
  readonly from: number;
  readonly length: number;
  readonly text: string;
  readonly tone: string;
}

/** A chart of horizontal bars with their names and values. */
export function Bars({
  title,
  bars,
  label,
}: {
  readonly title?: string;
  readonly bars: readonly Bar[];
  readonly label: string;
}) {
  return (
    <figure>
      {title === undefined ? null : <figcaption>{title}</figcaption>}
      <div class="bars" role="img" aria-label={label}>
        {bars.map(bar => (
          <>
            <span class="bar-name" title={bar.name.trim()}>
              {bar.name}
            </span>
            <span class="track">
              <span
                class={`bar ${bar.tone}`}
                // The content security policy forbids style attributes in the markup.
                ref={element => {
                  element?.style.setProperty('margin-left', `${bar.from * 100}%`);
                  element?.style.setProperty('width', `${bar.length * 100}%`);
                }}
              />
            </span>
            <span class="number">{bar.text}</span>
          </>
        ))}
      </div>
    </figure>
  );
}
