// The page of a cluster study: the viewer, with a table of each point that has every figure.

/** A row for each figure, a column for each choice. */
class StudyReadOut extends ReadOut {
  get corner() {
    return "Choice";
  }

  rows(cube) {
    this.figures = Object.entries(cube.views).filter(([, view]) => !view.plane);
    return this.figures.map(([name, view]) => [view.label, name, (policy) => [(this.cells[policy][name] = make("data"))]]);
  }

  update(point) {
    const { cube } = this;
    this.where.textContent = pointText(cube, point);
    this.cells.forEach((cells, policy) => {
      this.updateState(policy, point);
      for (const [name] of this.figures) {
        const value = cube.value(name, policy, point);
        setData(cells[name], value, formatNumber(value));
      }
    });
  }

  /** One sentence on a point, for screen readers. */
  spoken(cube, point) {
    const { texts } = stateLook(cube, "verdict", LIGHT);
    return spokenPoint(cube, point, (policy) =>
      `${texts[cube.stored("verdict", policy, point)]}, mean TTFT ${formatNumber(cube.value("ttft_mean", policy, point), 3)} s`);
  }
}

showEmbedded(StudyReadOut);
